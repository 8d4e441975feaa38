#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""aligntool raid create, once for each name."""

DOCUMENTATION = r"""
module: raid
short_description: Make a software RAID on the boundaries of its drives, which returns after every reboot
version_added: 0.1.0
description:
  - Runs C(aligntool raid create), which makes tables, array, file system, mount and the configuration for every start.
  - An array of this name that runs already is left unchanged; the task fails if its level, drives, chunk or metadata
    version are others.
  - An array that an earlier run left unfinished is finished first, or undone with I(state=rolled_back).
options:
  name:
    description:
      - The array is C(/dev/md/NAME).
    type: str
    required: true
  devices:
    description:
      - Drives, or one partition of each drive. Required to make the array.
    type: list
    elements: path
  state:
    description:
      - C(present) makes the array.
      - C(rolled_back) undoes the array of this name if it is unfinished, and does nothing else.
    type: str
    choices: [present, rolled_back]
    default: present
  level:
    description:
      - The RAID level. Required without I(recipe).
    type: str
    choices: ['0', '1', '10', '5', '6']
  recipe:
    description:
      - A goal that comes with aligntool, such as C(nvme-raid0-scratch).
    type: str
  chunk:
    description:
      - The chunk, such as C(256KiB); the recommended one by default.
    type: str
  workload:
    description:
      - Choose the chunk for this load.
    type: str
    choices: [general, boot, database, sequential, lsm, vm]
  database_page:
    description:
      - Page size for I(workload=database).
    type: str
  fs:
    description:
      - The file system; C(xfs) by default.
    type: str
    choices: [xfs, ext4, btrfs, swap, none]
  layout:
    description:
      - Such as C(n2) for RAID10.
    type: str
  bitmap:
    description:
      - The write-intent bitmap.
    type: str
    choices: [internal, none]
  metadata:
    description:
      - The metadata version.
    type: str
    choices: ['1.2', '1.0']
  mount:
    description:
      - Where to mount it, or C(none); C(/srv/NAME) by default.
    type: str
  spare_end:
    description:
      - Free space to leave at the end of each drive.
    type: str
  whole_drives:
    description:
      - Make the drives themselves the members, without tables.
    type: bool
    default: false
  wipe:
    description:
      - Members on which everything may be lost.
    type: list
    elements: path
  tuned:
    description:
      - A file of C(aligntool raid tune) on the managed host.
    type: path
  system:
    description:
      - Whose files and commands; this system's by default.
    type: str
    choices: [debian, debian-dracut, fedora, opensuse, arch]
  wait:
    description:
      - Return when the first resynchronisation is done.
    type: bool
    default: false
extends_documentation_fragment:
  - aligntool.aligntool.aligntool
  - aligntool.aligntool.aligntool.changes
"""

EXAMPLES = r"""
- name: Make a mirror for databases
  aligntool.aligntool.raid:
    name: data
    level: '1'
    workload: database
    devices: [/dev/nvme0n1, /dev/nvme1n1]
    mount: /srv/data
"""

RETURN = r"""
array:
  description: The array that is there, as C(aligntool raid show --json) has it.
  returned: if it was there already
  type: dict
plan:
  description: The goal, the partitions, what to do afterwards, and the notes of the plan.
  returned: if the array is made
  type: dict
sentences:
  description: The result in words.
  returned: if something was changed
  type: list
  elements: str
rc:
  description:
    - The exit code of aligntool; 3 means that nothing was written.
    - 4 means that something was, and that the same task finishes the array.
  returned: failure
  type: int
refusals:
  description: Every reason with its C(code), C(subject), C(text) and C(hint); C(docs/refusals.md) lists the codes.
  returned: failure
  type: list
  elements: dict
next:
  description: The commands to type.
  returned: failure
  type: list
  elements: str
"""

import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aligntool.aligntool.plugins.module_utils.aligntool import ARGUMENTS, Aligntool, flags, shown

OPTIONS = {
    "level": {"type": "str", "choices": ["0", "1", "10", "5", "6"]},
    "recipe": {"type": "str"},
    "chunk": {"type": "str"},
    "workload": {"type": "str", "choices": ["general", "boot", "database", "sequential", "lsm", "vm"]},
    "database_page": {"type": "str"},
    "fs": {"type": "str", "choices": ["xfs", "ext4", "btrfs", "swap", "none"]},
    "layout": {"type": "str"},
    "bitmap": {"type": "str", "choices": ["internal", "none"]},
    "metadata": {"type": "str", "choices": ["1.2", "1.0"]},
    "mount": {"type": "str"},
    "spare_end": {"type": "str"},
    "whole_drives": {"type": "bool", "default": False},
    "wipe": {"type": "list", "elements": "path"},
    "tuned": {"type": "path"},
    "system": {"type": "str", "choices": ["debian", "debian-dracut", "fedora", "opensuse", "arch"]},
}


def find(arrays, name):
    """Return the array of this name, or None."""
    device = Path("/dev/md", name).resolve()
    return next((one for one in arrays if Path(one["path"]).resolve() == device), None)


def size(text):
    """Return the bytes of "256KiB"; None for what aligntool itself refuses."""
    found = re.fullmatch(r"(\d+) *(?:([kmg])ib|b)?", text.strip(), re.IGNORECASE)
    return int(found[1]) << {None: 0, "k": 10, "m": 20, "g": 30}[found[2] and found[2].lower()] if found else None


def differences(array, params):
    """Return how an array that is there differs from what is wanted of it, a sentence each."""
    found, members = [], array["members"]
    level, devices, chunk, metadata = (params[name] for name in ("level", "devices", "chunk", "metadata"))
    if level is not None and array["level"] != "raid" + level:
        found.append(f"its level is {array['level']}, not raid{level}")
    if chunk is not None and array["chunk"] and array["chunk"] != size(chunk):
        found.append(f"its chunk is {array['chunk']} bytes, not {chunk}")
    if metadata is not None and array["metadata"] != metadata:
        found.append(f"its metadata version is {array['metadata']}, not {metadata}")
    wanted = {Path(device).resolve().name for device in devices or ()}
    if devices is not None and not (
        len(wanted) == len(members) and all(wanted & {member["name"], member["drive"]} for member in members)
    ):
        found.append(
            f"its members are {', '.join(member['name'] for member in members)}, not of {', '.join(sorted(wanted))}"
        )
    return found


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            **OPTIONS,
            name={"type": "str", "required": True},
            devices={"type": "list", "elements": "path"},
            state={"type": "str", "choices": ["present", "rolled_back"], "default": "present"},
            wait={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    aligntool, params = Aligntool(module), module.params
    back, result = params["state"] == "rolled_back", {"changed": False}
    status = aligntool.document("status")[0]
    if status["state"] != "old" and not (back and Path(status["disk"]).name != params["name"]):
        result = aligntool.recover(status, [], back=back)
    if back or (result["changed"] and module.check_mode):
        module.exit_json(**result)
    array = find(aligntool.document("raid", "show")[0]["arrays"], params["name"])
    if array:
        wrong = differences(array, params)
        if wrong:
            module.fail_json(msg=f"{params['name']} is there already: {'; '.join(wrong)}", array=array, **result)
        module.exit_json(array=array, **result)
    if not params["devices"]:
        module.fail_json(msg=f"there is no array {params['name']}, and devices are needed to make it", **result)
    words = ["raid", "create", *flags(params, ("name", *OPTIONS)), *params["devices"]]
    plan, refused = aligntool.plan(*words)
    if refused:
        aligntool.fail(*refused)
    result.update(
        changed=True, plan=shown(plan), diff={"before": "", "after": f"{plan['disk']['path']}: {plan['goal']}\n"}
    )
    if not module.check_mode:
        wait = ["--wait"] if params["wait"] else []
        result["sentences"] = aligntool.change(*words, *wait)["sentences"]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
