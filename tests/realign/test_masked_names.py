"""Commands for a captured machine whose names the snapshot masked: nothing that cannot be typed there is a command."""

import pytest

from aligntool.commands import ByHand, by_hand, command, joined_commands, split_step, typed
from aligntool.realign.planning import there

RELEASE = "first release what uses it ({}), under names that are masked here"
PLAN = "sudo aligntool plan realign /dev/sda"


@pytest.mark.parametrize(
    ("hints", "words", "pasted"),
    [
        ([typed("umount", "/srv"), typed("mdadm --stop", "/dev/md0"), PLAN], "", "sudo umount /srv && "),
        ([typed("umount", "/masked/1"), PLAN], RELEASE.format("umount"), PLAN),
        ([typed("umount", "/srv"), typed("vgchange -an", "masked2"), PLAN], RELEASE.format("umount, vgchange"), PLAN),
        ([typed("umount", "/masked/1"), by_hand(ByHand.MAPPINGS, "tee")], "release what uses it (umount, tee)", ""),
        ([command("audit", "/dev/md_masked3")], "an audit there shows the command", ""),
        ([by_hand(ByHand.MEMBERS, "mdadm", "/dev/md_masked3")], "by hand, with mdadm on /dev/md_masked3", ""),
    ],
)
def test_a_command_with_a_masked_name_becomes_words(hints: list[str], words: str, pasted: str) -> None:
    step = there(joined_commands(hints), "server.tar.xz")
    assert step.startswith(f"on the captured machine: {words}")
    assert split_step(step)[1].startswith(pasted) and "masked" not in split_step(step)[1]
    assert bool(split_step(step)[1]) == bool(pasted)
