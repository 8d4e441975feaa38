#!/usr/bin/python
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Return the result of aligntool audit as facts."""

DOCUMENTATION = r"""
module: audit
short_description: Check whether partitions start on the boundaries of their drives
version_added: 0.1.0
description:
  - Runs C(aligntool audit) and sets its report as the fact C(aligntool).
  - The module only reads. See C(docs/json.md) of aligntool for the fields of the report.
options:
  targets:
    description:
      - Disks, partitions or disk images; every disk of the host by default.
    type: list
    elements: str
  fail_on:
    description:
      - Fail the task if there is a finding of this severity or worse.
      - A given target that cannot be audited always fails the task.
    type: str
    choices: [error, warning, never]
    default: never
  grain:
    description:
      - Boundary that partitions should start on, such as C(1MiB).
    type: str
  timeout:
    description:
      - Seconds to wait for a disk.
    type: float
  wake:
    description:
      - Also read disks that are asleep.
    type: bool
    default: false
attributes:
  check_mode:
    description: The module only reads, so check mode makes no difference.
    support: full
  diff_mode:
    description: Nothing is changed.
    support: none
extends_documentation_fragment:
  - aligntool.aligntool.aligntool
"""

EXAMPLES = r"""
- name: Gather the alignment of every disk
  aligntool.aligntool.audit:

- name: Show the misaligned partitions
  ansible.builtin.debug:
    msg: "{{ ansible_facts.aligntool.findings | selectattr('severity', 'eq', 'error') | map(attribute='summary') }}"

- name: Fail if a partition of these disks is misaligned
  aligntool.aligntool.audit:
    targets: [/dev/sda, /dev/sdb]
    fail_on: error
"""

RETURN = r"""
ansible_facts:
  description: The facts that this module adds.
  returned: always
  type: dict
  contains:
    aligntool:
      description: The report, as C(aligntool audit --json) prints it; C(aligntool schema audit) is its JSON Schema.
      type: dict
      returned: always
findings:
  description: The summaries of the findings that failed the task.
  returned: if I(fail_on) fails the task
  type: list
  elements: str
unseen:
  description: What could not be audited.
  returned: on failure
  type: list
  elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.aligntool.aligntool.plugins.module_utils.aligntool import (
    ARGUMENTS,
    REFUSED,
    Aligntool,
    flags,
)


def main():
    """Run the module."""
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            targets={"type": "list", "elements": "str"},
            fail_on={"type": "str", "choices": ["error", "warning", "never"], "default": "never"},
            grain={"type": "str"},
            timeout={"type": "float"},
            wake={"type": "bool", "default": False},
        ),
        supports_check_mode=True,
    )
    words = [
        "audit",
        *flags(module.params, ("fail_on", "grain", "timeout", "wake")),
        *(module.params["targets"] or ()),
    ]
    report, code = Aligntool(module).document(*words, codes=(0, 1, REFUSED))
    found = {"ansible_facts": {"aligntool": report}, "changed": False}
    if code:
        order = ("error", "warning", "info")
        worst = (
            order[: order.index(module.params["fail_on"]) + 1] if module.params["fail_on"] in order else ()
        )
        findings = [one["summary"] for one in report["findings"] if one["severity"] in worst]
        unseen = report["unseen"]
        msg = "\n".join([*findings, *(f"{one['what']}: {one['why']}" for one in unseen)])
        module.fail_json(msg=msg, rc=code, findings=findings, unseen=unseen, **found)
    module.exit_json(**found)


if __name__ == "__main__":
    main()
