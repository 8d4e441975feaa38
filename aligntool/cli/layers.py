"""Change the layers of a disk in place: what `realign --layers` plans and applies, and `resume` finishes."""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path

from aligntool.change import ArrayPlan, Plan, plan_with_request
from aligntool.cli.arrays import ArrayOperation, locked_array
from aligntool.cli.options import command
from aligntool.cli.run_change import ChangeInProgress, end_change
from aligntool.errors import Refused, failing_as
from aligntool.linux.sysfs import opened_document
from aligntool.raid.encrypted import plan_layers
from aligntool.raid.steps_luks import Key, refuse_unfit
from aligntool.realign.preconditions import look_before_change
from aligntool.realign.request import Request, look_at
from aligntool.render.lines import Line, plain
from aligntool.render.plan import step_title
from aligntool.units import MIB

_LONGEST_KEY = 8 * MIB  # cryptsetup's own limit for a key file
_FROM_FILE = "--key-file FILE reads it from a file"


@dataclass(frozen=True, slots=True)
class Layers(ArrayOperation):
    """Re-encrypt every LUKS2 volume of a disk with sectors of the drive's size."""

    disk: str
    asked: Request
    key_file: str | None = None

    @property
    def named(self) -> str:
        return self.disk

    def make_plan(self) -> ArrayPlan:
        # A record must name an image whatever the current folder is.
        disk = str(Path(self.disk).absolute()) if os.path.isfile(self.disk) else self.disk  # noqa: PTH113
        rule = "layers are changed on a disk or on some of its partitions"
        return plan_layers(look_before_change(disk, self.asked, rule, "-p"), self.asked.goal.partitions)

    def document(self, plan: Plan) -> str:
        return plan_with_request(plan, "asked", self.asked) + "\n"

    def next_command(self) -> str:
        return command("realign", self.disk, *self.asked.typed)

    def locked(self, plan: Plan) -> AbstractContextManager[ChangeInProgress]:
        if os.geteuid() != 0:
            raise Refused(
                "only root can change layers", hint="run the same command with sudo", code="root-only"
            )
        key = read_key(self.key_file)
        return locked_array(plan, self.make_plan, key, lambda: refuse_unfit(plan, key))

    def verify(self, plan: Plan, *, json_: bool, kernel_behind: bool) -> None:
        report_layers(plan, json_=json_)


def read_key(file: str | None) -> Key:
    """Return the content of a key file, or a passphrase from the terminal; kept in memory only. Raises
    Refused.
    """
    if file is None or file == "-":
        if sys.stdin is None or not sys.stdin.isatty():
            raise Refused("there is no terminal to enter the passphrase", hint=_FROM_FILE)
        try:
            return Key(getpass("LUKS2 passphrase: ").encode())
        except EOFError as error:
            raise Refused("no passphrase was entered", hint=_FROM_FILE) from error
        except UnicodeError as error:
            raise Refused("the passphrase is not valid text in this locale", hint=_FROM_FILE) from error
    with failing_as(Refused, file), opened_document(file) as opened:
        content = opened.read(_LONGEST_KEY + 1)
    if not 0 < len(content) <= _LONGEST_KEY:
        raise Refused(f"{file} is not a key file: it is empty, or longer than {_LONGEST_KEY} bytes")
    return Key(content)


def report_layers(plan: Plan, *, json_: bool) -> None:
    """Look at the disk again, and report. Raises Stopped if a step is left, or if the disk cannot be read."""

    def look_again() -> Iterable[Line]:
        numbers = tuple(
            number for step in plan.steps if (number := getattr(step, "partition", None)) is not None
        )
        left = plan_layers(
            look_at(plan.disk.path, Request(sector_size=plan.disk.sector_size))[0], numbers
        ).steps
        if left:
            raise Refused(f"still to do: {', '.join(map(step_title, left))}")
        yield plain(f"Done: {plan.goal}")

    end_change(plan, look_again, again=command("audit", plan.disk.path), json_=json_)
