"""A `Reader` of an open file or block device."""

import os
from dataclasses import dataclass

from aligntool.probe.reader import clip


@dataclass(frozen=True, slots=True)
class FileReader:
    """An open file or block device. `descriptor` must have been opened read-only; its owner closes it."""

    descriptor: int
    size: int

    def read(self, offset: int, length: int) -> bytes:
        wanted = clip(offset, length, self.size)
        pieces = []
        while wanted > 0:
            piece = os.pread(self.descriptor, wanted, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            wanted -= len(piece)
        return b"".join(pieces)
