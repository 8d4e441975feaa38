"""`aligntool raid tune --clear`: test arrays that a sweep left behind, because the power went or it was killed.

In: members. Out: the same without a test array. Alone because it looks at superblocks only, and touches those of test
arrays only.
"""

import sys


def clear_members(drives: list[str], *, yes: bool) -> None:
    """Raises Refused where a member holds anything else, or nothing; Stopped where something is left."""
    from pathlib import Path, PurePath

    from aligntool.apply.tuning_array import examine, is_test, locked, take_away
    from aligntool.audit.words import shell_word
    from aligntool.cli.confirm import confirm_disk
    from aligntool.cli.raid_members import look_at_members
    from aligntool.errors import Refused

    members, _, _, _ = look_at_members(drives)
    devices = [str(Path(name if "/" in name else f"/dev/{name}").resolve()) for name in drives]
    found = {device: examine(device) for device in devices}
    strange = [device for device, values in found.items() if values and not is_test(values)]
    if strange:
        raise Refused(f"{', '.join(strange)}: an array that is no test array; nothing was written")
    ours = [device for device in devices if found[device]]
    if not ours:
        raise Refused(f"no test array lies on {', '.join(devices)}; nothing was written")
    names = " ".join(PurePath(device).name for device in ours)
    confirm_disk(", ".join(ours), names, "the members' names", yes)
    with locked([judged.disk.path for judged in members]):
        take_away(ours)
    wiped = " ".join(f"--wipe {shell_word(device)}" for device in ours)
    sys.stdout.write(
        f"Taken away: the test arrays on {', '.join(ours)}.\n"
        f"What their loads wrote is still there: aligntool raid create takes these members with {wiped}; blkdiscard "
        "--zeroout DEV empties one for another sweep.\n"
    )


def clear_hint_of(disk: str) -> str:
    """What takes a test array away that a sweep left on this disk; "": there is none, or it cannot be looked at."""
    from aligntool.audit.words import shell_word
    from aligntool.errors import Refused
    from aligntool.probe.look import look
    from aligntool.raid.tuning_marks import has_test_array

    try:
        found = look((disk,)).disks
    except Refused:
        return ""
    return f"sudo aligntool raid tune --clear {shell_word(disk)}" if any(map(has_test_array, found)) else ""
