"""Unpacks the archive of a snapshot into a folder.

In: a tar file from somebody else. Out: its folders, files and links. Alone because the names in it may lead anywhere
and a few bytes may become gigabytes, and because only an archive needs the modules that this needs.
"""

import gzip
import lzma
import os
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from aligntool.errors import Refused

MOST_MEMBERS = 2_000_000
MOST_BYTES = 512 * 1024 * 1024
LARGEST_MEMBER = 16 * 1024 * 1024
DEEPEST = 100  # folders in folders, as a `Tree` follows them


@dataclass(slots=True)
class _Bounded:
    """A stream that ends badly when it gives more than any honest archive: a few bytes of xz can become gigabytes."""

    stream: IO[bytes]
    left: int

    def read(self, size: int) -> bytes:
        piece = self.stream.read(size)
        self.left -= len(piece)
        if self.left < 0:
            raise Refused("the archive unpacks to more than any captured machine has")
        return piece


def unpack(archive: str, folder: str) -> None:
    try:
        with (
            _decompressed(archive) as stream,
            tarfile.open(fileobj=_Bounded(stream, MOST_BYTES), mode="r|") as tar,  # type: ignore[call-overload]
        ):
            for members, member in enumerate(tar):
                if members > MOST_MEMBERS or member.size > LARGEST_MEMBER:
                    raise Refused(f"{archive} unpacks to more than any captured machine has")
                _unpack_member(tar, member, folder)
    except (
        tarfile.TarError,
        lzma.LZMAError,
        zlib.error,
        OSError,
        EOFError,
        ValueError,
        OverflowError,
    ) as error:
        hint = "give a folder, or a file that `aligntool snapshot` wrote"
        raise Refused(f"{archive} cannot be unpacked: {error}", hint=hint) from error


def _decompressed(archive: str) -> IO[bytes]:
    raw = Path(archive).open("rb")  # noqa: SIM115  (the caller closes it, through the stream)
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\xfd7zXZ\0"):
        return cast("IO[bytes]", lzma.open(raw))
    return cast("IO[bytes]", gzip.open(raw)) if head.startswith(b"\x1f\x8b") else raw


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    """Folders and files are made by their names alone; links are kept as links, which only a `Tree` follows.

    A name is taken apart and anything that leads out of the folder, or through a link, refuses the whole archive: no
    archive of ours has one.
    """
    words = [word for word in member.name.split("/") if word not in ("", ".")]
    if not words:
        return
    if member.name.startswith("/") or ".." in words:
        raise Refused(f"the archive holds {member.name!r}, which leads out of it")
    if len(words) > DEEPEST:
        raise Refused("the archive holds folders deeper than any captured machine has")
    if member.issparse():  # half a KiB in the archive, as much as it likes when unpacked
        raise Refused(f"the archive holds {member.name!r}, a file with holes, which no captured machine has")
    place = Path(folder, *words)
    if any(Path(folder, *words[:depth]).is_symlink() for depth in range(1, len(words) + 1)):
        raise Refused(f"the archive holds {member.name!r}, which lies behind a symbolic link")
    if member.isdir():
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        place.symlink_to(member.linkname)
    elif member.isreg():
        source = tar.extractfile(member)
        if source is not None:
            descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(source.read(LARGEST_MEMBER))
