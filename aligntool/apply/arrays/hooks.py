"""Whether mkinitcpio would put mdadm.conf into the initramfs at all.

In: the steps of a plan, and a site. Out: a reason where it would not. Alone because it is Arch's own: everywhere else
the package of mdadm sees to it, and here the user does, in a file of bash.
"""

import re
from collections.abc import Iterator, Sequence

from aligntool.apply.arrays.site import Site
from aligntool.plan import RunCommand, Step

CONF = "/etc/mkinitcpio.conf"
HOOK = "mdadm_udev"
_HOOKS = re.compile(r"""^[ \t]*HOOKS(\+?)=(?:\(([^)]*)\)|"([^"]*)"|'([^']*)')""", re.MULTILINE)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)


def about_hooks(steps: Sequence[Step], site: Site) -> Iterator[tuple[str, str]]:
    """mkinitcpio.conf(5): the file, then those of the folder beside it, in which HOOKS is set or added to. Where none
    of them sets it nobody can tell, and the look into the image does.
    """
    if not any(isinstance(step, RunCommand) and step.command[0] == "mkinitcpio" for step in steps):
        return
    hooks: list[str] | None = None
    for file in (site.path(CONF), *sorted(site.path(f"{CONF}.d").glob("*.conf"))):
        try:
            text = _COMMENT.sub("", file.read_text(errors="replace"))
        except OSError:
            continue
        for added, *words in _HOOKS.findall(text):
            hooks = [*(hooks or [] if added else []), *"".join(words).split()]
    if hooks is not None and HOOK not in hooks:
        yield (
            f"{CONF} has no {HOOK} in HOOKS: the initramfs would know nothing of the array",
            f"put {HOOK} before filesystems in HOOKS of {CONF}",
        )
