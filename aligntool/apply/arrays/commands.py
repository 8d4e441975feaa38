"""Commands of the system, run and taken back: mounts, swap, boot images, what systemd knows.

In: a RunCommand step. Out: what it printed is checked, or Stopped. Alone because most commands may simply be run again,
and a few need to know whether their work is done, and how it is undone.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from aligntool.apply.arrays.running import PACKAGES, ask, do
from aligntool.apply.programs import find_program
from aligntool.errors import Stopped
from aligntool.plan import RunCommand, Said

REBUILDERS = ("update-initramfs", "dracut", "mkinitcpio")
_SYSTEMD = Path("/run/systemd/system")  # sd_booted(3)
_SHOWN = 500


def find_trace(step: RunCommand) -> dict[str, str]:
    """The topmost folder that `mkdir -p` will make; a partition's type; whether the mount or swap was there before."""
    if step.command[:2] == ("mkdir", "-p"):
        place = Path(step.command[2])
        missing = [each for each in (place, *place.parents) if not each.exists()]
        return {"made": str(missing[-1])} if missing else {}
    if _sets_type(step):
        return {"type": _type_now(step)}
    return {"before": "there"} if _is_done(step) else {}


def run_command(step: RunCommand) -> Iterator[Said]:
    """Raises Stopped with what it said."""
    if step.command[0] == "systemctl" and not _SYSTEMD.is_dir():
        yield Said("systemd does not run here, so there is nothing to tell it")
        return
    if _is_done(step):
        if step.command[0] == "mount" and (why := _other_than_said(step.command[1])):
            raise Stopped(why, hint=f"sudo umount {step.command[1]}, then aligntool resume")
        yield Said("done already")
        return
    said = do(*step.command)
    if step.expects and step.expects not in said.output:
        raise Stopped(
            f"{' '.join(step.command)} did not print {step.expects}: {said.output.strip()[-_SHOWN:] or 'nothing'}"
        )


def undo_command(step: RunCommand, trace: Mapping[str, str]) -> Iterator[Said]:
    """Mounts, swap and folders that were made go away, types come back; what else was run has nothing to undo."""
    match step.command:
        case ("mount", place) if "before" not in trace and is_mounted(place):
            if why := _other_than_said(place):
                yield Said(f"{why}; it is left there")
                return
            do("umount", place)
            yield Said(f"{place} is not mounted any more")
        case ("swapon", "-U", uuid) if "before" not in trace and _is_swap(uuid):
            do("swapoff", "-U", uuid)
            yield Said("the swap is switched off")
        case ("systemctl", "enable", unit) if "before" not in trace and _is_enabled(unit):
            do("systemctl", "disable", unit)
            yield Said(f"{unit} is not enabled any more")
        case ("sfdisk", *words, path, number, given) if _sets_type(step) and trace.get("type"):
            if _same_type(_type_now(step), given) and not _same_type(trace["type"], given):
                do("sfdisk", *words, path, number, trace["type"])
                yield Said(f"partition {number} of {path} has its old type again")
        case ("mkdir", "-p", place) if "made" in trace:
            yield from _remove_folders(Path(place), Path(trace["made"]))


def builds_images(step: RunCommand) -> bool:
    """Of the system's files, for the next start."""
    return step.command[0] in REBUILDERS and not step.expects


def tells_systemd(step: RunCommand) -> bool:
    """That its files are others now; a unit that is enabled is no such thing."""
    return step.command[0] == "systemctl" and step.command[1] != "enable" and not step.expects


def rebuilds(step: RunCommand) -> bool:
    """It carries the system's files to where they count, so it is run again once they are put back."""
    return builds_images(step) or tells_systemd(step)


def is_mounted(place: str) -> bool:
    """Something is mounted at exactly this place."""
    return ask("mountpoint", "-q", place).code == 0


def started_by_itself(step: RunCommand, uuids: Collection[str]) -> bool:
    """A mount or swap that was never asked for is there all the same: fstab has it, and the machine was started anew.
    Only of a file system with one of these UUIDs.
    """
    match step.command:
        case ("mount", place):
            return _uuid_at(place).lower() in {uuid.lower() for uuid in uuids}
        case ("swapon", "-U", uuid):
            return _is_swap(uuid)
    return False


def _uuid_at(place: str) -> str:
    """Of the file system that is mounted there, the last one where there are several; "": of none, or nobody knows."""
    found = ask("findmnt", "--noheadings", "--output", "UUID", "--mountpoint", place).output.split()
    return found[-1] if found else ""


def _other_than_said(place: str) -> str:
    """A sentence where something else is mounted there than fstab says; "" where it is that, or nobody knows."""
    said = ask("findmnt", "--fstab", "--noheadings", "--output", "SOURCE", place).output.strip()
    there, wanted = _uuid_at(place), said.removeprefix("UUID=")
    if wanted == said or not there or wanted.lower() == there.lower():
        return ""
    return f"at {place} the file system {there} is mounted, and fstab has {wanted} there"


def files_below(place: str) -> list[str]:
    """What lies in a folder but what mkfs makes itself; a few names are enough."""
    try:
        return sorted(each.name for each in Path(place).iterdir() if each.name != "lost+found")[:5]
    except OSError:
        return []


def missing_programs(steps: list[tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """(program, package) for each that is not installed, also where a script names it."""
    words = {command[0] for command in steps}
    for command in steps:
        if command[0] in ("sh", "bash") and command[1] == "-c":
            words |= {name for name in PACKAGES if name in command[2].replace(";", " ").split()}
    if not _SYSTEMD.is_dir():
        words.discard("systemctl")
    for word in sorted(words):
        if find_program(word) is None:
            yield word, PACKAGES.get(word, word)


def _is_done(step: RunCommand) -> bool:
    match step.command:
        case ("mount", place):
            return is_mounted(place)
        case ("swapon", "-U", uuid):
            return _is_swap(uuid)
        case ("systemctl", "enable", unit):
            return _is_enabled(unit)
    return False


def _is_enabled(unit: str) -> bool:
    return _SYSTEMD.is_dir() and ask("systemctl", "is-enabled", unit).code == 0


def _sets_type(step: RunCommand) -> bool:
    return step.command[0] == "sfdisk" and "--part-type" in step.command


def _type_now(step: RunCommand) -> str:
    """As sfdisk takes it back. Raises Stopped where it finds no such partition."""
    *_, path, number, _ = step.command
    return do("sfdisk", "--part-type", path, number).output.strip()


def _same_type(one: str, other: str) -> bool:
    return one.lower().removeprefix("0x") == other.lower().removeprefix("0x")


def _is_swap(uuid: str) -> bool:
    said = ask("swapon", "--show=UUID", "--noheadings", "--raw")
    return uuid.lower() in said.output.lower().split()


def _remove_folders(place: Path, made: Path) -> Iterator[Said]:
    """From the inside out, as long as they are empty."""
    while made == place or made in place.parents:
        try:
            place.rmdir()
        except OSError:
            return
        yield Said(f"the folder {place} is gone")
        place = place.parent


def refuse_taken_place(step: RunCommand) -> Iterator[str]:
    """Why nothing should be mounted there, a sentence each."""
    if step.command[0] != "mount" or len(step.command) != 2:
        return
    place = step.command[1]
    if is_mounted(place):
        yield f"something is mounted at {place} already"
    elif Path(place).exists() and not Path(place).is_dir():
        yield f"{place} is no folder"
    elif files_below(place):
        yield f"{place} is not empty; a mount would hide {', '.join(files_below(place))}"
