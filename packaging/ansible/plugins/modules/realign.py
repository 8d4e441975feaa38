#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run aligntool realign, resume or rollback, depending on the requested state."""

DOCUMENTATION = r"""
module: realign
short_description: Move partitions with their content onto the boundaries of their drive
version_added: 0.1.0
description:
  - Runs C(aligntool realign), which moves partitions in place and survives a power cut at any moment.
  - An interrupted move on the disk is finished first, or undone with I(state=rolled_back).
  - There is no confirmation; check mode shows the plan. Make a backup first.
options:
  disk:
    description:
      - The disk, or a disk image. Nothing on it may be mounted or in use.
    type: path
    required: true
  state:
    description:
      - C(aligned) moves every partition that is off the grid, and finishes a move in flight.
      - C(rolled_back) undoes a move in flight, and does nothing else.
    type: str
    choices: [aligned, rolled_back]
    default: aligned
  partition:
    description:
      - Move only the partitions with these numbers.
    type: list
    elements: int
  grain:
    description:
      - Use exactly this boundary for starts, no coarser or finer one.
    type: str
  recipe:
    description:
      - A realign recipe that comes with aligntool.
    type: str
  shrink:
    description:
      - Allow file systems to be shrunk to make room.
    type: bool
    default: false
  used_only:
    description:
      - Copy only used blocks, even if something else on the disk may need the free ones.
    type: bool
    default: false
  journal:
    description:
      - Write the journal to this new file on another disk instead of free space on this one.
    type: path
  not_suspended:
    description:
      - State that no system is suspended to disk in a layer that cannot be looked into, such as a LUKS.
      - Without it, the task fails for a disk with such a layer.
    type: bool
    default: false
  rate:
    description:
      - Copy at most this much per second, such as C(50MiB).
    type: str
extends_documentation_fragment:
  - aligntool.aligntool.aligntool
  - aligntool.aligntool.aligntool.changes
"""

EXAMPLES = r"""
- name: Realign a disk, and finish a move that a power cut interrupted
  aligntool.aligntool.realign:
    disk: /dev/sdb

- name: Undo a move that was interrupted
  aligntool.aligntool.realign:
    disk: /dev/sdb
    state: rolled_back
"""

RETURN = r"""
plan:
  description: The goal, the partitions before and after, what to do afterwards, and the notes of the plan.
  returned: success, with I(state=aligned)
  type: dict
sentences:
  description: The result as text.
  returned: if something was changed
  type: list
  elements: str
rc:
  description:
    - The exit code of aligntool; 3 means that nothing was written.
    - 4 means that something was written; running the same task again finishes the move.
  returned: failure
  type: int
refusals:
  description: Every reason with its C(code), C(subject), C(text) and C(hint); C(docs/refusals.md) lists the codes.
  returned: failure
  type: list
  elements: dict
next:
  description: The commands to run.
  returned: failure
  type: list
  elements: str
"""

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aligntool.aligntool.plugins.module_utils.aligntool import (
    ARGUMENTS,
    Aligntool,
    codes,
    flags,
    places,
    shown,
)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            disk={"type": "path", "required": True},
            state={"type": "str", "choices": ["aligned", "rolled_back"], "default": "aligned"},
            partition={"type": "list", "elements": "int"},
            grain={"type": "str"},
            recipe={"type": "str"},
            shrink={"type": "bool", "default": False},
            used_only={"type": "bool", "default": False},
            journal={"type": "path"},
            not_suspended={"type": "bool", "default": False},
            rate={"type": "str"},
        ),
        supports_check_mode=True,
    )
    aligntool, disk, back = Aligntool(module), module.params["disk"], module.params["state"] == "rolled_back"
    options = ("partition", "grain", "recipe", "shrink", "used_only", "journal", "rate")
    words = ["realign", disk, *flags(module.params, options)]
    result = {"changed": False}
    plan, refused = (None, None) if back else aligntool.plan(*words)
    if back or (refused and "in-flight" in codes(refused[1])):
        journal = module.params["journal"]
        target = [disk, *(["--journal", journal] if journal and Path(journal).exists() else [])]
        code, out, err = aligntool.run("rollback" if back else "resume", *target, "--dry-run", "--json")
        if code == 0:
            result = aligntool.recover(
                json.loads(out), [*target, *flags(module.params, ("rate",))], back=back
            )
        elif "not-in-flight" not in codes(out):
            aligntool.fail(code, out, err)
        if back or module.check_mode:
            module.exit_json(**result)
        plan, refused = aligntool.plan(*words)
    if refused:
        aligntool.fail(*refused)
    result["plan"] = shown(plan)
    if plan["steps"]:
        result.update(changed=True, diff={"before": places(plan, "before"), "after": places(plan, "after")})
        if not module.check_mode:
            result["sentences"] = aligntool.change(*words, *flags(module.params, ("not_suspended",)))[
                "sentences"
            ]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
