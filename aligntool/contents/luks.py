"""LUKS1 and LUKS2."""

import hashlib
import json
from dataclasses import replace

from aligntool.commands import ByHand
from aligntool.contents.kind import Kind, Unit, UnitOf, unit_of
from aligntool.contents.lvm_text import Section, sections
from aligntool.contents.signatures import magic
from aligntool.documents import count_values
from aligntool.formats.numbers import be16, be32, be64, text_at
from aligntool.formats.reader import WORDS, Area, Budget, Reader, checksum_problem
from aligntool.inventory import Layer
from aligntool.units import KIB, MIB

# The content is encrypted, so there is no inner layer. Formats: LUKS1 on-disk format 1.2.3, LUKS2 on-disk
# format 1.1 (cryptsetup's docs folder). A volume with a detached header, on another device, cannot be
# recognised.

MAGIC = b"LUKS\xba\xbe"
SECOND_MAGIC = b"SKUL\xba\xbe"
HEADER_SIZES = tuple(16 * KIB << power for power in range(9))  # specification 3.1: 16 KiB to 4 MiB
CHECKSUM_AT = 448
CHECKSUM_SIZE = 64
SECTOR = 512


_Header = tuple[bytes, tuple[str, ...]]  # one LUKS2 header copy, and its problems

REENCRYPTING = "its re-encryption is not finished"
REENCRYPTED = f"{REENCRYPTING}: all data are done, but its header does not say so"
UNFLUSHED = f"{REENCRYPTING}: its journal or its data may not be on the disk"
NOT_BY_CRYPTSETUP = "do not open or continue it with cryptsetup, which would lose data: see docs/layers.md"


def read_luks(area: Area) -> Layer | None:
    if area.head[:6] != MAGIC:
        return None
    version = be16(area.head, 6)
    if version == 1:
        return _read_luks1(area)
    return _read_luks2(area) if version == 2 and be64(area.head, 256) == 0 else None


def read_luks_second(area: Area) -> Layer | None:
    """Return the volume by its second LUKS2 header if the first was overwritten: `cryptsetup repair` can
    restore it.

    mkfs and mkswap wipe both headers, so a remaining second header shows that something else overwrote the
    first.
    """
    for at in HEADER_SIZES:
        start = area.read(at, 264)
        if start[:6] == SECOND_MAGIC and be64(start, 256) == at:
            lost = (f"the first LUKS2 header is gone; the second, {at} bytes further, is left",)
            second = _read_luks2_header(area, at)
            return _luks2_layer(area, second, lost) if second else None
    return None


def _read_luks1(area: Area) -> Layer:
    payload = be32(area.head, 104) * SECTOR
    key_length = be32(area.head, 108)
    # first sector, stripes
    slots = ((be32(area.head, at), be32(area.head, at + 4)) for at in range(248, 632, 48))
    header = max(sector * SECTOR + stripes * key_length for sector, stripes in slots)
    return Layer(
        kind="crypto_LUKS",
        extent=area.extent,
        version="LUKS1",
        uuid=text_at(area.head, 168, 40),
        data_start=area.start + payload if 0 < payload < area.size else None,
        data_unit=SECTOR,
        problems=_payload_problem(area, payload, header),
    )


def _read_luks2(area: Area) -> Layer | None:
    first = _read_luks2_header(area, 0)
    if first is None:
        return None
    second = _read_luks2_header(area, be64(first[0], 8))
    if second is None:
        return _luks2_layer(area, first, (*first[1], "the second LUKS2 header is missing or unreadable"))
    if first[1] and not second[1]:  # the volume is intact: `cryptsetup repair` rewrites the first header
        return _luks2_layer(
            area, second, (f"the first LUKS2 header is damaged, the second is intact: {'; '.join(first[1])}",)
        )
    problems = first[1] + tuple(f"{problem} (second copy)" for problem in second[1])
    updates = [be64(content, 16) for content, _ in (first, second)]
    newest = max((first, second), key=lambda header: (not header[1], be64(header[0], 16)))
    if not problems and updates[0] != updates[1]:
        if _from_second(first, second, area.budget) is not None:
            return replace(_luks2_layer(area, second, ()), unclean=UNFLUSHED)
        needs = _requirements(_metadata(newest[0], area.budget)) or ""
        if not needs.startswith(REENCRYPTING):  # they are written in turn
            problems = (
                f"the two LUKS2 headers differ: update {updates[0]} and update {updates[1]}; the newer is"
                " used",
            )
    return _luks2_layer(area, newest, problems)


def _read_luks2_header(area: Area, at: int) -> _Header | None:
    """Return the header copy at `at`, with its JSON area, or None if there is none."""
    start = area.read(at, 4096)
    size = be64(start, 8)
    if start[:6] not in (MAGIC, SECOND_MAGIC) or be16(start, 6) != 2 or size not in HEADER_SIZES:
        return None
    content = area.read(at, size)
    if len(content) < size:
        return content, (f"the LUKS2 header has {size} bytes, {len(content)} of them are here",)
    algorithm = text_at(content, 72, 32)
    if algorithm not in ("sha1", "sha256", "sha384", "sha512"):
        return content, (f"the LUKS2 header's checksum algorithm {algorithm} is not known",)
    computed = _luks2_checksum(content)
    stored = content[CHECKSUM_AT : CHECKSUM_AT + len(computed)]
    return content, checksum_problem("the LUKS2 header", stored.hex()[:16], computed.hex()[:16])


def _luks2_layer(area: Area, header: _Header, problems: tuple[str, ...]) -> Layer:
    content = header[0]
    tree = _metadata(content, area.budget)
    segments = _luks_segments(_in_use(tree))
    needs = _requirements(tree)
    is_plain = all(
        segment.get("type") == "crypt" and not segment.get("integrity") for segment in _in_use(tree)
    )
    offset, length = min(((at, length) for at, length, _ in segments), default=(None, 0))
    header_length = _header_length(content, tree)
    start = area.start + offset if offset is not None and header_length <= offset < area.size else None
    # While it is re-encrypted, it counts as what it was before.
    units = [sector for *_, sector in _luks_segments(_before(tree)) or segments if sector]
    no_segment = ("the LUKS2 header lists no encrypted segment",)
    problems += no_segment if offset is None else _payload_problem(area, offset, header_length)
    # During re-encryption there are data behind the segments in use: a moved segment, a backup.
    claims = (
        offset + length
        if start and offset and length and len(segments) == 1 and not needs and is_plain
        else None
    )
    return replace(
        area.layer("crypto_LUKS", claims, min(units, default=None)),
        version="LUKS2",
        label=text_at(content, 24, 48),
        uuid=text_at(content, 168, 40),
        unclean=needs,
        data_start=start,
        problems=problems,
        has_tags=any(segment.get("integrity") for segment in _in_use(tree)),
    )


def _metadata(content: bytes, budget: Budget) -> Section:
    """Return the JSON area of a header; empty if it is not valid. Raises OverBudgetError."""
    text = content[4096:].split(b"\0", 1)[0]
    budget.spend(WORDS, count_values(text))
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return tree if isinstance(tree, dict) else {}


def _header_length(content: bytes, tree: Section) -> int:
    """Return the bytes of both copies of the header and of the key slots, before which no data can begin."""
    config = tree.get("config")
    slots = _decimal(config.get("keyslots_size")) if isinstance(config, dict) else None
    return 2 * be64(content, 8) + (slots or 0)


# Flags of segments (specification 3.3). "backup-previous", "backup-final" and "backup-moved-segment" describe
# another moment than now.
_BACKUP = "backup-"


def _luks_segments(segments: list[Section]) -> list[tuple[int, int, int | None]]:
    """Return (offset, length, sector size) of segments; length 0: up to the end of the device; sector size
    None: not encrypted. While a device is re-encrypted there are several; the first byte of data is the
    lowest offset.
    """
    found = []
    for segment in segments:
        offset = _decimal(segment.get("offset"))
        length = _decimal(segment.get("size"))
        sector = segment.get("sector_size", SECTOR)
        if offset is not None and isinstance(sector, int) and sector in (512, 1024, 2048, 4096):
            is_encrypted = str(segment.get("type")).endswith("crypt")
            found.append((offset, length or 0, sector if is_encrypted else None))
    return found


def _in_use(tree: Section) -> list[Section]:
    """Return the segments that describe the data as they are now, also those that are being re-encrypted."""
    return [segment for _, segment in sections(tree, "segments") if _BACKUP not in str(segment.get("flags"))]


def _before(tree: Section) -> list[Section]:
    """Return the segments that a re-encryption replaces."""
    return [
        segment for _, segment in sections(tree, "segments") if "backup-previous" in str(segment.get("flags"))
    ]


def is_reencrypted(tree: Section) -> bool:
    """Return whether a re-encryption underway has done all data: there is one segment, as it is afterwards.

    cryptsetup (2.6 to 2.8) must not continue then: it takes the only segment for the one before, and would
    encrypt all data again, which loses them (lib/luks2/luks2_reencrypt.c, _offset_forward).
    """
    found = {str(segment.get("flags")): (name, segment) for name, segment in sections(tree, "segments")}
    ends = [
        next((one for flags, one in found.items() if flag in flags), None) for flag in ("-previous", "-final")
    ]
    if len(_in_use(tree)) != 1 or None in (*ends, found.get("None")):
        return False
    before, after, now = (_encryption(tree, *named) for named in (*ends, found["None"]) if named)
    return before != now == after


def _encryption(tree: Section, name: str, segment: Section) -> tuple[object, ...]:
    """Return how a segment is encrypted, with the digests of its keys."""
    digests = [(digest, value.get("segments")) for digest, value in sections(tree, "digests")]
    of_segment = [digest for digest, names in digests if isinstance(names, list) and name in names]
    return segment.get("type"), segment.get("sector_size"), segment.get("encryption"), of_segment


def unflushed_copy(area: Area) -> bytes | None:
    """Return what the first LUKS2 header has to be if only the second tells the state of the data; else None.

    cryptsetup (2.5 to 2.8) flushes two things only with the first header, so a power cut may leave it without
    them:
    the journal of a segment that it marks as hot (lib/luks2/luks2_keyslot_reenc.c, reenc_keyslot_store_data),
    and the data of a segment that was recovered and is not hot any more (luks2_reencrypt.c,
    reencrypt_recovery). Recovery would write an incomplete journal over data, or incomplete data would count
    as done. Until the second header, which is one update older, follows, the data and the journal are as it
    tells.
    """
    first = _read_luks2_header(area, 0)
    second = _read_luks2_header(area, be64(area.head, 8))
    return _from_second(first, second, area.budget) if first and second else None


def _from_second(first: _Header, second: _Header, budget: Budget) -> bytes | None:
    """Return the first header made from the second, if only that tells the state of the data; else None."""
    if first[1] or second[1] or be64(first[0], 16) != be64(second[0], 16) + 1:
        return None
    trees = [_metadata(content, budget) for content, _ in (first, second)]
    hot = ["in-reencryption" in str(_in_use(tree)) for tree in trees]
    # without the segments before, it is finished, and its journal wiped
    if hot[0] == hot[1] or not _before(trees[0]):
        return None
    copy = MAGIC + second[0][len(MAGIC) : 256] + bytes(8) + second[0][264:]  # its own offset is 0
    digest = _luks2_checksum(copy).ljust(CHECKSUM_SIZE, b"\0")
    return copy[:CHECKSUM_AT] + digest + copy[CHECKSUM_AT + CHECKSUM_SIZE :]


def _luks2_checksum(content: bytes) -> bytes:
    """Return the checksum of a header copy, which is computed as if it were zero."""
    blanked = content[:CHECKSUM_AT] + bytes(CHECKSUM_SIZE) + content[CHECKSUM_AT + CHECKSUM_SIZE :]
    return hashlib.new(text_at(content, 72, 32) or "", blanked, usedforsecurity=False).digest()


def _requirements(tree: Section) -> str | None:
    """Return what a program must know before it changes the volume (specification 3.6), as a sentence."""
    if any(str(segment.get("type")).startswith("hw-opal") for segment in _in_use(tree)):
        return "the drive itself encrypts a range of its blocks (hw-opal)"
    config = tree.get("config")
    required = config.get("requirements") if isinstance(config, dict) else None
    names = required.get("mandatory") if isinstance(required, dict) else required
    if not names:
        return None
    words = ", ".join(str(name)[:40] for name in names[:3]) if isinstance(names, list) else "something"
    if "-reencrypt" in words:  # "online-reencrypt-v2", "offline-reencrypt"
        return f"{REENCRYPTED if is_reencrypted(tree) else REENCRYPTING} ({words})"
    return f"its LUKS2 header requires {words}, which aligntool does not support"


def _decimal(word: object) -> int | None:
    """Return a 64-bit number, which LUKS2 stores as a JSON string (specification 3.1.1)."""
    return (
        int(word) if isinstance(word, str) and len(word) <= 20 and word.isascii() and word.isdigit() else None
    )


def _payload_problem(area: Area, payload: int, header: int) -> tuple[str, ...]:
    """Return the problem of a truncated header. A header without data is a backup, or that of another device,
    on which the data often begin at 0, and always before the end of this header or behind this container.
    """
    text = f"the encrypted data should start at byte {payload}, but its container has {area.size} bytes"
    return () if header <= area.size else (text,)


LONGEST_HEADER = 4 * MIB
_LARGEST_SECTOR = 4096


def _smallest_unit(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    """Return dm-crypt's sectors: the content already has none smaller."""
    header = reader.read(layer.extent.start, LONGEST_HEADER)
    odd = any(word in header for word in (b"online-reencrypt", b'"integrity":'))
    if odd or (layer.data_start or 1) % _LARGEST_SECTOR:
        return Unit(
            None, "is being re-encrypted, has integrity tags, or has its data off a 4096-byte boundary"
        )
    return unit_of(layer.data_unit)


def _title(layer: Layer) -> str:
    return (
        layer.version if layer.version and layer.version.startswith("LUKS") else f"LUKS{layer.version or ''}"
    )


def _cleaning(layer: Layer) -> str | tuple[ByHand, str]:
    unclean = layer.unclean or ""
    if unclean.startswith((REENCRYPTED, UNFLUSHED)):
        return NOT_BY_CRYPTSETUP
    return (ByHand.LUKS, "cryptsetup") if unclean.startswith(REENCRYPTING) else ""


LUKS = Kind(
    "crypto_LUKS",
    readers=(read_luks,),
    is_owner=True,
    is_on_floppies=True,
    signatures=(
        magic("crypto_LUKS", MAGIC, heads=(0,)),
        magic("crypto_LUKS", SECOND_MAGIC, heads=tuple(16 * KIB << step for step in range(9))),
    ),
    title=_title,
    short_title=lambda layer: "LUKS",
    examiner="cryptsetup luksDump",
    cleaning=_cleaning,
    works_anywhere=True,
    role="luks",
    smallest_unit=_smallest_unit,
    is_container=True,
    may_be_detached=True,
    fills_device=True,
    opens_with_key=True,
)
