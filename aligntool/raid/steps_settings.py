"""Read and set the settings of a running array, in sysfs."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aligntool.change import Said
from aligntool.commands import typed
from aligntool.errors import Stopped
from aligntool.inventory import ARRAY_SETTINGS, MEMBER_SETTINGS
from aligntool.linux.devices import active_word, drive_folder, names_below
from aligntool.linux.programs import find_program, run_program
from aligntool.linux.sysfs import LIVE
from aligntool.raid.commands import RELOAD_RULES
from aligntool.raid.settings import SCHEDULER, TRIED
from aligntool.raid.steps_md import find_arrays
from aligntool.steps import ApplySettings

# The attributes of sysfs. What is written there ends with the next boot.


class Attributes:
    """The settings of a running array, each in one file of sysfs or in one for each drive."""

    def __init__(self, array: str, members: tuple[str, ...]) -> None:
        own = f"/sys/block/{array}"
        drives = dict.fromkeys(drive_folder(LIVE, member) for member in members)
        self.paths: dict[str, tuple[str, ...]] = {name: (f"{own}/{name}",) for name in ARRAY_SETTINGS}
        self.paths |= {name: tuple(f"{drive}/{name}" for drive in drives) for name in MEMBER_SETTINGS}

    def now(self, name: str) -> str | None:
        """Return the value; None if it cannot be read, or if drives differ."""
        found = {value_in(path) for path in self.paths[name]}
        return next(iter(found)) or None if len(found) == 1 else None

    def offered(self, name: str) -> tuple[str, ...]:
        """Return the words that every drive offers, of a scheduler."""
        if name != SCHEDULER:
            return ()
        texts = [(LIVE.text(path) or "").replace("[", "").replace("]", "") for path in self.paths[name]]
        return tuple(set.intersection(*(set(text.split()) for text in texts)) if texts else ())

    def set(self, name: str, value: str) -> bool:
        """Return whether the kernel has taken the value."""
        for path in self.paths[name]:
            if value_in(path) != value:
                with suppress(OSError):
                    Path(path).write_text(value)
        return self.now(name) == value

    def values(self) -> dict[str, str]:
        """Return all values by their files, in the order in which they have to be restored."""
        paths = [path for name in TRIED for path in self.paths[name]]
        return {path: value for path, value in zip(paths, map(value_in, paths), strict=True) if value}


def value_in(path: str) -> str:
    """Return the value in a file of sysfs, "" if it cannot be read."""
    return active_word(LIVE.text(path) or "")


# ApplySettings


def apply_settings(step: ApplySettings) -> Iterator[Said]:
    """Have udev read its rules again, because an event may bring those of an older rule, and set the values.
    Raises Stopped.
    """
    if find_program("udevadm"):
        run_program(*RELOAD_RULES)
    attributes = _attributes(step)
    if attributes is None:
        raise Stopped(f"{step.path} does not run", hint=typed("mdadm --detail", step.path))
    refused = [each for each in step.settings if not attributes.set(each.name, each.after)]
    if refused:
        listed = ", ".join(f"{each.name} {each.after}" for each in refused)
        raise Stopped(f"the kernel does not accept for {step.path}: {listed}")
    yield Said(f"{step.path} has these settings now")


def undo_settings(step: ApplySettings) -> Iterator[Said]:
    """Set the former values, as far as the array runs and has those of the step."""
    attributes = _attributes(step)
    if attributes is None:
        return
    for each in step.settings:
        if attributes.now(each.name) == each.after and not attributes.set(each.name, each.before):
            yield Said(f"{each.name} of {step.path} stays as it is until the next boot")


def _attributes(step: ApplySettings) -> Attributes | None:
    for name in find_arrays(step.array):
        return Attributes(name, names_below(LIVE, f"/sys/block/{name}"))
    return None
