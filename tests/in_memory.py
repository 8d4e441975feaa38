"""A disk whose content is bytes in memory, for the parsers."""

from dataclasses import dataclass

from aligntool.formats.reader import readable_length


@dataclass(frozen=True, slots=True)
class BytesReader:
    """A Reader of bytes in memory."""

    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length] if readable_length(offset, length, self.size) > 0 else b""
