#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Make an array with aligntool raid create, unless one of that name exists."""

DOCUMENTATION = r"""
module: raid
short_description: Make an aligned software RAID that is assembled after every reboot
version_added: 0.1.0
description:
  - Runs C(aligntool raid create), which makes the tables, array, file system, mount and boot configuration.
  - A running array of this name is left unchanged; the task fails if its level, drives, chunk or metadata version
    differ from the options.
  - An array that an earlier run left unfinished is finished first, or undone with I(state=rolled_back).
options:
  name:
    description:
      - The name of the array, which becomes C(/dev/md/NAME).
      - With I(state=ensured) and without I(settings), the name or the path of a file of C(aligntool raid ensure) on
        the managed host.
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
      - C(ensured) runs C(aligntool raid ensure), which finds the drives itself, compares everything, and makes the
        array only of drives that are proven blank; of the other options, only I(settings) and I(wait) are used.
    type: str
    choices: [present, rolled_back, ensured]
    default: present
  settings:
    description:
      - For I(state=ensured), the keys of a file of C(aligntool raid ensure), which is not read then.
        C(docs/recipes.md) lists them.
    type: dict
  level:
    description:
      - The RAID level. Required without I(recipe).
    type: str
    choices: ['0', '1', '10', '5', '6']
  recipe:
    description:
      - An array recipe that comes with aligntool, such as C(nvme-raid0-scratch).
    type: str
  chunk:
    description:
      - The chunk, such as C(256KiB); by default the recommended chunk.
    type: str
  workload:
    description:
      - The load that the chunk is chosen for.
    type: str
    choices: [general, boot, database, sequential, lsm, vm]
  database_page:
    description:
      - The page size for I(workload=database).
    type: str
  fs:
    description:
      - The file system; C(xfs) by default.
    type: str
    choices: [xfs, ext4, btrfs, swap, none]
  layout:
    description:
      - The layout, such as C(n2) for RAID10.
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
      - The mount point, or C(none); C(/srv/NAME) by default.
    type: str
  spare_end:
    description:
      - Free space to leave at the end of each drive.
    type: str
  lba_size:
    description:
      - First format empty NVMe drives to logical blocks of this size, such as C(4096).
    type: str
  zero_members:
    description:
      - First zero empty NVMe drives, so that the array needs no resynchronisation.
    type: bool
    default: false
  fast_sync:
    description:
      - Lift md's limit for the first resynchronisation, and wait for its end.
    type: bool
    default: false
  whole_drives:
    description:
      - Use whole drives as members, without partition tables.
    type: bool
    default: false
  one_drive:
    description:
      - Accept a single drive, as a RAID0 of one.
    type: bool
    default: false
  wipe:
    description:
      - Members that may be overwritten; all their content is lost.
    type: list
    elements: path
  tuned:
    description:
      - A result file of C(aligntool raid tune) on the managed host.
    type: path
  system:
    description:
      - The system whose files and commands are used; by default that of the managed host.
    type: str
    choices: [debian, debian-dracut, fedora, opensuse, arch]
  wait:
    description:
      - Wait until the first resynchronisation is done.
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

- name: Use the ephemeral drives of a cloud, if there are any
  aligntool.aligntool.raid:
    name: scratch
    state: ensured
    settings:
      level: raid0
      mount_at: /mnt/scratch
      drives:
        select: [instance-store, all-unused]
        one: filesystem
        none: nothing
"""

RETURN = r"""
array:
  description: The existing array, as printed by C(aligntool raid show --json).
  returned: if the array already existed, unless I(state=ensured)
  type: dict
plan:
  description: The goal, the partitions, what to do afterwards, and the notes of the plan.
  returned: if the array is made, and with I(state=ensured)
  type: dict
sentences:
  description: The result as text.
  returned: if something was changed
  type: list
  elements: str
rc:
  description:
    - The exit code of aligntool; 3 means that nothing was written.
    - 4 means that something was written; running the same task again finishes the array.
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
import re
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aligntool.aligntool.plugins.module_utils.aligntool import (
    ARGUMENTS,
    Aligntool,
    flags,
    shown,
)

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
    "lba_size": {"type": "str"},
    "zero_members": {"type": "bool", "default": False},
    "fast_sync": {"type": "bool", "default": False},
    "whole_drives": {"type": "bool", "default": False},
    "one_drive": {"type": "bool", "default": False},
    "wipe": {"type": "list", "elements": "path"},
    "tuned": {"type": "path"},
    "system": {"type": "str", "choices": ["debian", "debian-dracut", "fedora", "opensuse", "arch"]},
}


def find(arrays, name):
    """Return the array of this name, or None."""
    device = Path("/dev/md", name).resolve()
    return next((one for one in arrays if Path(one["path"]).resolve() == device), None)


def size(text):
    """Return the bytes of "256KiB", or None for a text that aligntool itself refuses."""
    found = re.fullmatch(r"(\d+) *(?:([kmg])ib|b)?", text.strip(), re.IGNORECASE)
    return (
        int(found[1]) << {None: 0, "k": 10, "m": 20, "g": 30}[found[2] and found[2].lower()]
        if found
        else None
    )


def settings(values, table=""):
    """Return the options --set KEY=VALUE for a dictionary of keys, and of a table of keys."""
    words = []
    for key, value in values.items():
        if isinstance(value, dict):
            words += settings(value, key + ".")
        else:
            words += ["--set", f"{table}{key}={toml(value) if isinstance(value, list) else value}"]
    return words


def toml(values):
    """Return a list of texts, or of dictionaries of texts, as TOML, whose strings are those of JSON."""
    rows = (
        "{" + ", ".join(f"{key} = {json.dumps(str(text))}" for key, text in value.items()) + "}"
        if isinstance(value, dict)
        else json.dumps(str(value))
        for value in values
    )
    return "[" + ", ".join(rows) + "]"


def ensure(module, aligntool, result):
    """Let the array exist, and end the module."""
    params = module.params
    words = ["raid", "ensure", params["name"], *settings(params["settings"] or {})]
    plan, refused = aligntool.plan(*words)
    if refused:
        aligntool.fail(*refused)
    result["plan"] = shown(plan)
    if plan["steps"]:
        lines = [f"{step['path']}: {line}" for step in plan["steps"] for line in step.get("lines", ())]
        after = "\n".join([f"{plan['disk']['path']}: {plan['goal']}", *lines])
        result.update(changed=True, diff={"before": "", "after": f"{after}\n"})
        if not module.check_mode:
            wait = ["--wait"] if params["wait"] else []
            result["sentences"] = aligntool.change(*words, *wait)["sentences"]
    module.exit_json(**result)


def differences(array, params):
    """Return how an existing array differs from the options, a sentence each."""
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
        names = ", ".join(member["name"] for member in members)
        found.append(f"its members are {names}, which do not match the devices {', '.join(sorted(wanted))}")
    return found


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            **OPTIONS,
            name={"type": "str", "required": True},
            devices={"type": "list", "elements": "path"},
            state={"type": "str", "choices": ["present", "rolled_back", "ensured"], "default": "present"},
            settings={"type": "dict"},
            wait={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    aligntool, params = Aligntool(module), module.params
    back, result = params["state"] == "rolled_back", {"changed": False}
    status = aligntool.unfinished_array()
    if status and not (back and Path(status["disk"]).name != params["name"]):
        result = aligntool.recover(status, [], back=back)
    if back or (result["changed"] and module.check_mode):
        module.exit_json(**result)
    if params["state"] == "ensured":
        ensure(module, aligntool, result)
    array = find(aligntool.document("raid", "show")[0]["arrays"], params["name"])
    if array:
        wrong = differences(array, params)
        if wrong:
            module.fail_json(
                msg=f"{params['name']} already exists: {'; '.join(wrong)}", array=array, **result
            )
        module.exit_json(array=array, **result)
    if not params["devices"]:
        module.fail_json(msg=f"there is no array {params['name']}; devices are required to make it", **result)
    words = ["raid", "create", *flags(params, ("name", *OPTIONS)), *params["devices"]]
    plan, refused = aligntool.plan(*words)
    if refused:
        aligntool.fail(*refused)
    result.update(
        changed=True,
        plan=shown(plan),
        diff={"before": "", "after": f"{plan['disk']['path']}: {plan['goal']}\n"},
    )
    if not module.check_mode:
        wait = ["--wait"] if params["wait"] else []
        result["sentences"] = aligntool.change(*words, *wait)["sentences"]
    module.exit_json(**result)


if __name__ == "__main__":
    main()
