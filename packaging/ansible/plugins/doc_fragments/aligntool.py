# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Documentation shared by the modules of this collection."""


class ModuleDocFragment:
    """The fragments, with the names that ansible-doc looks for."""

    DOCUMENTATION = r"""
options:
  executable:
    description:
      - The command C(aligntool) on the managed host, or the path of C(aligntool.pyz) there.
    type: path
    default: aligntool
requirements:
  - aligntool 0.1 or newer on the managed host
author:
  - The aligntool developers
"""
    CHANGES = r"""
attributes:
  check_mode:
    description: Shows what would be changed, using a dry run of C(aligntool), and writes nothing.
    support: full
  diff_mode:
    description: Shows the partitions or the array before and after.
    support: full
"""
