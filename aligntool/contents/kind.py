"""What the program may ask of a kind of content.

Every default is the careful answer: of a kind that states nothing else, every byte is copied, it is not
shrunk, not converted and not put elsewhere, a suspended system may be in it, and no program that changes it
is suggested.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

from aligntool.commands import ByHand
from aligntool.contents.signatures import Signature
from aligntool.device import Medium
from aligntool.errors import Refusal
from aligntool.formats.reader import Area, Reader
from aligntool.inventory import Layer
from aligntool.units import KIB, Extent


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest unit in which some content is read and written: it cannot be used on larger sectors.

    `size` is in bytes; None: not known, or it varies. `words` describe the unit in a message, after a name.
    `exact`: the content works only on sectors of this size.
    """

    size: int | None
    words: str
    exact: bool = False

    def fits(self, sector: int) -> bool:
        """Return whether the content works on sectors of `sector` bytes."""
        if self.size is None or self.exact:
            return self.size == sector
        return self.size >= sector and self.size % sector == 0


NOT_READ = Unit(None, "could not be read")
UNKNOWN_UNIT = Unit(None, "is not known to work on sectors of another size")

Read = Callable[[int, int], bytes]  # the bytes of a content from an offset on
Words = tuple[str, ...]
UnitOf = Callable[[Reader, Layer], Unit]


@dataclass(frozen=True, slots=True)
class StartField:
    """The field of a boot sector that records where the partition begins, in sectors."""

    at: int  # byte in the boot sector
    length: int  # bytes
    title: str
    boots: str = "DOS or Windows"  # what reads it
    checksum: str = ""  # title of the checksum of the boot region that has it


@dataclass(frozen=True, slots=True)
class NewArray:
    """What is requested of the content of a new array, and the array. Sizes in bytes; None: not requested."""

    uuid: str
    name: str
    chunk: int  # 0: none
    data: int  # members' worth of data in a full stripe
    wants_stripes: bool  # it is faster if whole stripes are written
    block_size: int | None
    inode_size: int | None
    log_size: int | None
    # the logical blocks that all drives could be given later, if the content allows it; None: as they are now
    sector: int | None = None
    discards: bool = True  # its mkfs may discard the array first; False: that was done

    @property
    def block(self) -> int:
        return self.block_size or 4 * KIB


def _no_notes(array: NewArray) -> Iterator[str]:
    yield from ()


@dataclass(frozen=True, slots=True)
class OnArray:
    """How a kind is made on a new array."""

    options: Callable[[NewArray], Iterator[str]]  # of its mkfs, with every value given
    notes: Callable[[NewArray], Iterator[str]] = _no_notes  # why it gets these stripe settings
    option_notes: Callable[[NewArray], Iterator[str]] = _no_notes  # what was requested
    # Limits, of which its mkfs would fail or lower a value: of inodes for a length of blocks, None: it has
    # neither; of a log; of the array, and how to stay above that; and what is wrong with the chunk.
    inode_sizes: Callable[[int], tuple[int, int]] | None = None
    log_sizes: tuple[int, int] | None = None
    least_size: Callable[[NewArray], int] = lambda array: 0
    if_too_small: str = "use larger members, or --fs ext4"
    chunk_problem: Callable[[NewArray], str] = lambda array: ""
    # The sizes of an inode and of the log, from its first 4 KiB; None: not known.
    sizes_in: Callable[[bytes], tuple[int | None, int | None]] = lambda head: (None, None)
    # Whether its first 4 KiB prove that it was never mounted.
    was_never_mounted: Callable[[bytes], bool] = lambda head: False


def _nothing_elsewhere(read: Read) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a checker means by other answers than an exit code of 0. Patterns are those of `re`.

    `harmless`: an exit code, with which nothing is wrong if each line matches. `unable`: begins the line by
    which it says that it cannot check this format; with `unable_codes`, only if it exits with one of them.
    With these it may also have found that a part is elsewhere: `elsewhere` returns what, from the bytes of
    the content.
    """

    harmless: tuple[int, str] | None = None
    unable: str = ""
    unable_codes: tuple[int, ...] = ()
    elsewhere: Callable[[Read], str] = _nothing_elsewhere


@dataclass(frozen=True, slots=True)
class Unsuitable:
    """Why a file system of a kind that can be shrunk cannot be. `text` follows the name of its partition."""

    text: str
    program: str  # by which a user changes that
    hint: str = "{}"  # the command, or where it is explained, is inserted
    takes_raw_copy: bool = False


def _has_no_least(output: str, read: Read) -> int:
    return 0


def _is_suitable(read: Read) -> Unsuitable | None:
    return None


@dataclass(frozen=True, slots=True)
class Shrinker:
    """How a kind is shrunk, by the command lines of its own tool. A length is in bytes.

    `check`: whether it is possible, without writing, for a device and a length; `least`: the length that its
    output states. `shrink`: for a device, a folder to mount it and a length; `verify`: what checks the
    result. `repair`: what a user does if that fails; "": its checker repairs it. `is_mounted`: its tool works
    on the disk, on a mounted file system; others work on a view.
    """

    check: Callable[[str, int], tuple[Words, ...]]
    shrink: Callable[[str, str, int], tuple[Words, ...]]
    verify: Words = ()
    least: Callable[[str, Read], int] = _has_no_least
    unsuitable: Callable[[Read], Unsuitable | None] = _is_suitable
    repair: str = ""
    is_mounted: bool = False
    uses_unwritten: bool = False  # a result may have blocks in use that its tool did not write


def _kind_name(layer: Layer) -> str:
    return layer.kind


def _unknown_unit(reader: Reader, layer: Layer, unit_of: UnitOf) -> Unit:
    return UNKNOWN_UNIT


def _by_mounting(layer: Layer) -> tuple[ByHand, str]:
    return ByHand.UNCLEAN, "mount"


def _has_inner(layer: Layer) -> bool:
    return bool(layer.inner) and not layer.problems


def contains_no_device(layer: Layer) -> bool:
    """Return that a suspended system cannot be in this layer, because no block device is: a file system."""
    return True


def _not_fixed(layer: Layer) -> Refusal | None:
    return None


def _nothing_reads_free_blocks(reader: Reader, extent: Extent) -> str:
    return ""


def _no_list(area: Area) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of content. Text is empty and functions return nothing where there is nothing to say."""

    name: str  # TYPE of blkid

    # Recognition. A reader may also return layers of kinds that state none. `is_owner`: it owns the whole
    # container, and anything else found there is inside it or is an old remnant. No RAID is on a floppy, but
    # these are.
    readers: tuple[Callable[[Area], Layer | None], ...] = ()
    is_owner: bool = False
    is_on_floppies: bool = False
    signatures: tuple[Signature, ...] = ()  # of libblkid

    # What else there may be.
    coexists: bool = False  # on bridge and hybrid discs; libblkid accepts any mix of these
    is_disc_image: bool = False  # written to a whole medium, with a table inside
    is_packed_image: bool = False  # of which a machine may have dozens on loop devices
    leaves_label_free: bool = False  # the sectors of a disklabel
    describes_others: bool = (
        False  # belongs to all bytes of another partition: hashes, tags, chunks that differ from it
    )
    why_free_blocks_matter: Callable[[Reader, Extent], str] = (
        _nothing_reads_free_blocks  # a clause, such as "has snapshots"
    )

    # Names for users: "LUKS2", in a table "LUKS", and of the array of which a whole disk is a member.
    title: Callable[[Layer], str] = _kind_name
    short_title: Callable[[Layer], str] = _kind_name
    array_title: str = ""

    # Programs. The checker checks everything and writes nothing, but for the device; e2fsck also takes
    # "IMAGE?offset=BYTES". The others are only named in messages.
    checker: tuple[str, ...] = ()
    examiner: str = "blkid -p"  # shows more, where there is no checker
    # by which the checker opens it at an offset of an image
    name_in_image: Callable[[str, int], str] | None = None
    answers: Answers = Answers()
    list_clearer: str = ""  # clears the list of bad blocks of the medium
    unsharer: str = ""  # removes the mark that other machines may use it
    recreator: str = ""  # makes it anew for sectors of another size
    recreating: str = ""  # how else it can be made for sectors of another size
    is_recreated: bool = False  # by aligntool itself
    shortener: str = ""  # makes it shorter, where aligntool does not
    # How an unclean content becomes clean: a sentence, or a section of docs/by-hand.md and its program; "":
    # look at it.
    cleaning: Callable[[Layer], str | tuple[ByHand, str]] = _by_mounting

    maker: str = ""  # mkfs

    # Mounting: by a line of fstab, with the recommended options; fsck(8) at boot.
    is_mountable: bool = False
    mount_options: tuple[str, ...] = ()
    is_checked_at_boot: bool = False
    on_array: OnArray | None = None

    # Used blocks: the program that lists them, or the structure that is read. `is_map_checked`: it is relied
    # on only if the checker finds no errors.
    map_source: str = ""
    used_blocks: Callable[[Medium, Layer, bool], Generator[Extent]] | None = None  # last: it was just shrunk
    only_header_matters: bool = False  # what else it holds is not needed
    is_map_checked: bool = True

    # Shrinking.
    shrinker: Shrinker | None = None
    after_shrink: str = ""  # what happens then
    why_not_shrinkable: str = ""  # behind a semicolon: what to do instead
    least_size: int = 0  # bytes that its resizer leaves at least
    least_length: Callable[[Medium], int] | None = None  # the same, of this one; 0: not known
    is_unclean_after_shrink: bool = False

    # Another place.
    why_fixed: Callable[[Layer], Refusal | None] = _not_fixed  # why it cannot be moved; without its subject
    works_anywhere: bool = False  # also at another offset of the disk
    role: str = "linux"  # of its partition, in formats/part_types.py
    leaves_first_sector: bool = False  # to a boot program
    start_field: StartField | None = None
    # Bytes of head and tail that the journal holds in any case; None: 128 KiB, or only the sectors of
    # signatures.
    held_ends: tuple[int, int] | None = None
    bad_blocks: Callable[[Area], int] = _no_list  # how many blocks it lists as bad places of its medium

    # Other sectors. The third argument finds the unit of what is inside.
    smallest_unit: Callable[[Reader, Layer, UnitOf], Unit] = _unknown_unit

    # Data: those of a container may be on a boundary although its start is not; so may the clusters of a FAT.
    # The superblock of an array is written as often as its data.
    is_container: bool = False
    counts_in_512: bool = False  # bytes, whatever the sectors
    may_be_detached: bool = False  # its header, from its data
    fills_device: bool = False  # in whole units, unless its header states a length
    states_length: bool = False  # its own: what follows in a longer partition is not used until it is grown
    opens_with_key: bool = False  # which alone shows what is inside
    has_clusters: bool = False
    updates_superblock: bool = False
    writes_units: bool = True  # one by one, so that a unit below the physical sector is slow

    # Suspended systems and starting ones.
    # a suspended system inside would have been recognised
    is_seen_through: Callable[[Layer], bool] = _has_inner
    is_suspended_system: bool = False
    used_by_windows: bool = False
    holds_windows: bool = False  # with its registry, drive letters and boot entries
    starts_windows: bool = False  # has its boot manager, if it is on an MBR disk
    starts_syslinux: bool = False  # which keeps a list of sectors
    starts_extlinux: bool = False  # or LILO; unless sector 0 has GRUB

    @property
    def is_member(self) -> bool:
        """Return whether a table on the same disk belongs to the pool, array or device of which it is a
        member.
        """
        return self.name.endswith("_member")

    @property
    def is_raid_member(self) -> bool:
        return self.name.endswith("_raid_member")

    @property
    def shrinkable(self) -> bool:
        return self.shrinker is not None

    @property
    def is_shrunk_mounted(self) -> bool:
        return self.shrinker is not None and self.shrinker.is_mounted

    @property
    def look(self) -> str:
        """Return the command that checks or examines it and writes nothing."""
        return " ".join(self.checker) or self.examiner


def unit_of(size: int | None) -> Unit:
    """Return the unit of a content that is read and written in blocks of `size` bytes; None: not recorded."""
    return Unit(size, f"uses blocks of {size} bytes" if size else "does not record its block size")


def in_whole_blocks(reader: Reader, layer: Layer, unit_of_inner: UnitOf) -> Unit:
    """Return the unit of a content all of whose requests are whole blocks or pages."""
    return unit_of(layer.data_unit)


_ROUNDED = 64 * KIB  # bytes to which mkfs, resizers and partition programs round; the largest block of ext4


def has_length(layer: Layer, length: int) -> bool:
    """Return whether a file system has `length` bytes, or fewer by no more than a tool rounds down."""
    return 0 <= length - (layer.claims_size or 0) <= max(layer.data_unit or 0, _ROUNDED)
