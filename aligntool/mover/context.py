"""The disk of a move and its surroundings."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from aligntool import steps
from aligntool.change import Waiting
from aligntool.device import Device
from aligntool.errors import Refused
from aligntool.mover.steps import Kernel
from aligntool.units import Extent


@dataclass(frozen=True, slots=True)
class MoveContext:
    """The disk of a move and its surroundings. `journal`: the file that was named for journals; None: none
    was.
    """

    device: Device
    kernel: Kernel
    journal: Device | None = None
    # the request that a disk has not answered for seconds
    unanswered: Callable[[], Waiting | None] = lambda: None
    # keeps other programs from opening an image file
    alone: Callable[[], AbstractContextManager[None]] = nullcontext
    # of a sparse image: linux/block.py
    room_for: Callable[[Iterable[Extent]], tuple[int, int] | None] = lambda _: None

    def device_of(self, place: steps.JournalPlace) -> Device:
        """Return the device on which a journal with this place is written. Raises Refused if its file is not
        open.
        """
        if place.file is None:
            return self.device
        if self.journal is None:
            raise Refused(
                f"the journal belongs into {place.file}, which is not open", hint=f"--journal {place.file}"
            )
        return self.journal
