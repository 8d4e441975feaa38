#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make a partition table with aligntool layout, unless the disk has it."""

DOCUMENTATION = r"""
module: layout
short_description: Make a partition table with all starts on the boundaries of the drive
version_added: 0.1.0
description:
  - Runs C(aligntool layout). A disk that already has exactly this table is left unchanged, even if it is in use.
  - A disk with another table or content is refused without I(wipe).
  - Only makes partitions; use other modules to make file systems.
options:
  disk:
    description:
      - The disk, or a disk image.
    type: path
    required: true
  parts:
    description:
      - The partitions, in order.
    type: list
    elements: dict
    suboptions:
      size:
        description:
          - The size, such as C(512MiB), or C(rest) for the space that the others leave.
        type: str
        required: true
      role:
        description:
          - The role, such as C(esp), C(linux), C(swap), C(lvm); C(docs/recipes.md) of aligntool lists all roles.
        type: str
        required: true
      name:
        description:
          - The name of the partition, in a GPT.
        type: str
  recipe:
    description:
      - A layout recipe that comes with aligntool, instead of I(parts).
    type: str
  table:
    description:
      - The kind of table; C(dos) is an MBR.
    type: str
    choices: [gpt, dos]
  grain:
    description:
      - Boundary for starts, such as C(1MiB).
    type: str
  spare_end:
    description:
      - Free space to leave at the end, such as C(1GiB).
    type: str
  lba_size:
    description:
      - First format an empty NVMe drive to logical blocks of this size, such as C(4096). A drive with content is refused, whatever I(wipe) is.
    type: str
  wipe:
    description:
      - Make the table even if the disk has another table or content, all of which is lost.
      - Nothing is lost if the disk already has this table.
    type: bool
    default: false
extends_documentation_fragment:
  - aligntool.aligntool.aligntool
  - aligntool.aligntool.aligntool.changes
"""

EXAMPLES = r"""
- name: Partition a data disk
  aligntool.aligntool.layout:
    disk: /dev/sdb
    parts:
      - {size: 512MiB, role: esp}
      - {size: rest, role: linux, name: data}
"""

RETURN = r"""
plan:
  description: The goal, the partitions and the notes of the plan.
  returned: success
  type: dict
sentences:
  description: The result as text.
  returned: if something was changed
  type: list
  elements: str
rc:
  description: The exit code of aligntool; 3 means that nothing was written, 4 that something was written.
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

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aligntool.aligntool.plugins.module_utils.aligntool import (
    ARGUMENTS,
    REFUSED,
    Aligntool,
    flags,
    places,
    shown,
)


def main():
    """Run the module."""
    part = {
        "size": {"type": "str", "required": True},
        "role": {"type": "str", "required": True},
        "name": {"type": "str"},
    }
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            disk={"type": "path", "required": True},
            parts={"type": "list", "elements": "dict", "options": part},
            recipe={"type": "str"},
            table={"type": "str", "choices": ["gpt", "dos"]},
            grain={"type": "str"},
            spare_end={"type": "str"},
            lba_size={"type": "str"},
            wipe={"type": "bool", "default": False},
        ),
        required_one_of=[("parts", "recipe")],
        mutually_exclusive=[("parts", "recipe")],
        supports_check_mode=True,
    )
    aligntool, params = Aligntool(module), module.params
    words = ["layout", params["disk"], *flags(params, ("recipe", "table", "grain", "spare_end", "lba_size"))]
    for one in params["parts"] or ():
        words += ["--part", ":".join(one[key] for key in ("size", "role", "name") if one[key])]
    plan, refused = aligntool.plan(*words)
    before = ""
    if refused and refused[0] == REFUSED and params["wipe"]:
        words += ["--wipe", params["disk"]]
        plan, refused = aligntool.plan(*words)
        before = aligntool.table(params["disk"]) if plan and module._diff else ""
    if refused:
        aligntool.fail(*refused)
    if not plan["steps"]:
        module.exit_json(changed=False, plan=shown(plan))
    result = {
        "changed": True,
        "plan": shown(plan),
        "diff": {"before": before, "after": places(plan, "after")},
    }
    if not module.check_mode:
        result["sentences"] = aligntool.change(*words)["sentences"]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
