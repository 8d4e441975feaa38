"""Show the disk inside an image file (qcow2, VMDK, VDI, VHDX, VHD, compressed) in its place, only to this
process; or a partition as a file that is copied on write.
"""

import atexit
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from aligntool.audit.wording import shell_word
from aligntool.commands import ByHand, Command, by_hand, typed
from aligntool.documents import load_object
from aligntool.errors import Refusal, Refused, failing_as
from aligntool.formats.numbers import be32, be64, le64
from aligntool.linux import confined
from aligntool.linux.block import note_served
from aligntool.linux.held import TRY_AGAIN, descriptors_of, hold, is_held, release
from aligntool.linux.lease import Lease, kind_of_file_system
from aligntool.linux.loops import NoLoop, read_only_loop
from aligntool.linux.programs import (
    PACKAGES,
    ProgramResult,
    end_program,
    find_program,
    pdeathsig_prefix,
    run_program,
)
from aligntool.linux.sysfs import READ_ONLY, opened
from aligntool.linux.targets import QEMU_DRIVERS, new_file, note_shown
from aligntool.units import GIB, KIB, MIB, TIB, Extent, format_about

# qemu-storage-daemon shows the disk as a file by FUSE. It is mounted over the image, in a mount namespace
# that only this process and its children are in: every path stays as the user gave it, no other program sees
# the disk, and nothing remains mounted when the last of them has ended, for whatever reason.
# docs/decisions/0040 has the reasons.
#
# The server gets the image and the connection of the mount, and can reach nothing else (linux/confined.py):
# what a header names, and what a flaw in QEMU opens, is not there.

_ANSWER_S = 20.0
_PATIENCE_S = 5.0  # the server of a killed aligntool keeps the lock for a moment
_PAUSE_S = 0.1
_EXTERNAL_DATA = 4  # an incompatible feature: docs/interop/qcow2.txt
_DIFFERENCING = 4  # Virtual Hard Disk Image Format Specification, "Disk Type"
_DAMAGED = 2  # qemu-img(1), check
_LEAKS_ONLY = 3  # the same


@dataclass(frozen=True, slots=True)
class _Image:
    """An open image. `node`: QEMU's BlockdevOptions for it. `plain`: the command that converts it to a raw
    image. `writable`: to an image that can be changed, "" if it is one. `backing`: descriptors of what it is
    an overlay of.
    """

    path: str
    descriptor: int
    node: Mapping[str, object]
    plain: str
    writable: str = ""
    backing: tuple[int, ...] = ()

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self.descriptor, *self.backing)


def show_disks(
    openers: Mapping[str, str],
    say: Callable[[str], object],
    *,
    writes: bool,
    alone: bool = False,
    no_lease: bool = False,
) -> tuple[Refusal, ...]:
    """Show the disks in these files in their place, to this process and its children, until it ends.
    `openers`: from `find_virtual`. `say`: called with notes for the user. `alone`: no other program may write
    to them meanwhile, as always with `writes`. `no_lease`: see `Lease`. Return the refusals of files that
    cannot be shown.

    Raises Refused if no disk can be shown here.
    """
    refusals: list[Refusal] = []
    images: dict[str, _Image] = {}
    with ExitStack() as stack:
        for path, opener in openers.items():
            real_path = os.path.realpath(path)
            if real_path in images:
                continue
            try:
                with failing_as(Refused, f"{path} cannot be opened"):
                    descriptor = stack.enter_context(opened(path, READ_ONLY))
                    if opener in QEMU_DRIVERS:
                        lease = None
                        if writes or alone:
                            lease = Lease(descriptor, path, no_lease=no_lease, readers=not writes)
                        shown = _open_virtual(path, descriptor, opener, say, writes=writes, lease=lease)
                    else:
                        shown = _unpack(path, descriptor, opener, say, writes=writes)
                    images[real_path] = stack.enter_context(shown)
            except Refused as refusal:
                refusals.append(Refusal("virtual-disk", path, str(refusal), refusal.hint))
        if images:
            with failing_as(Refused, "the disk inside an image cannot be shown"):
                _serve(tuple(images.values()), writes=writes, confines=not confined.is_unconfined())
                for path in images:
                    # This loads the owner, without which the kernel refuses a user's open for writing.
                    os.stat(path)  # noqa: PTH116
    for path in filter(is_held, openers):
        if os.path.realpath(path) in images:
            _hold_shown(path)
    for path, image in images.items():
        note_shown(path, image.plain, image.writable)
        note_served(path)
    return tuple(refusals)


def _hold_shown(path: str) -> None:
    """Hold the disk inside a file in place of the file. Raises Refused if the path does not lead to it by
    now.
    """
    release(path)
    hold(path)
    if [kind_of_file_system(descriptor) for descriptor in descriptors_of(path)] != ["fuse"]:
        raise Refused(f"{path} was replaced by another file while the disk in it was opened", hint=TRY_AGAIN)


# Check an image before QEMU opens it. QEMU must not guess the format, and must not open other files that a
# header names: a header may name any file of this machine, or a server.


@contextmanager
def _open_virtual(
    path: str,
    descriptor: int,
    driver: str,
    say: Callable[[str], object],
    *,
    writes: bool,
    lease: Lease | None,
) -> Iterator[_Image]:
    """Yield a virtual disk. `lease`: to check that no other program has the file open; while it is shown, its
    server has it locked, but only against other programs of QEMU. Raises Refused if it must not be opened,
    with a command as the hint.
    """
    safe = _safe_path(path)
    to_qcow2 = typed(f"qemu-img convert -f {driver} -O qcow2", safe, new_file("new.qcow2"))
    if_trusted = f"{to_qcow2}   if you trust the image: it decides which files this reads"
    _refuse_other_files(path, driver, os.pread(descriptor, 512, 0), if_trusted)
    if writes and driver != "qcow2":
        raise Refused(f"{path} cannot be changed: of virtual disks only qcow2 can", hint=to_qcow2)
    if writes and not os.access(path, os.W_OK):
        raise Refused(
            f"{path} is not writable by this user", hint=by_hand(ByHand.READ_ONLY, "chmod", shell_word(path))
        )
    file = {"driver": "file", "filename": f"/proc/self/fd/{descriptor}"}
    node: dict[str, object] = {"driver": driver, "file": file, "read-only": not writes}
    facts, shared = _read_info(path, descriptor, node, alone=lease is not None)
    if lease:
        lease.probe()
    backing = facts.get("backing-filename")
    if backing:
        raise Refused(f"{path} is an overlay of {shell_word(str(backing))}", hint=if_trusted)
    if facts.get("encrypted"):
        opened_as = f"driver={driver},encrypt.key-secret=key,file.filename={safe.replace(',', ',,')}"
        with_key = "qemu-img convert --object secret,id=key,file=KEYFILE -O raw --image-opts"
        hint = typed(with_key, opened_as, new_file("disk.img"))
        raise Refused(f"{path} is encrypted", hint=hint)
    if writes and (snapshots := facts.get("snapshots")):
        count = len(cast("list[object]", snapshots))
        raise Refused(
            f"{path} has internal snapshots, which would keep a copy of all moved data: {count}",
            hint=f"{typed('qemu-img snapshot -l', safe)}\n{to_qcow2}",
        )
    if shared:
        node["force-share"] = True
        say(f"{path} is in use by another program: its content may change while it is read")
    else:
        _refuse_unsound(path, descriptor, node, facts, writes=writes)
    if driver == "qcow2":
        node |= {"backing": None, "lazy-refcounts": False}
    if not path.lower().endswith((f".{driver}", ".vhd")):
        say(f"{path} has the signature of {driver} and is read as such")
    plain = typed(f"qemu-img convert -f {driver} -O raw", safe, new_file("disk.img"))
    yield _Image(path, descriptor, node, plain, "" if driver == "qcow2" else to_qcow2)


def _refuse_other_files(path: str, driver: str, head: bytes, if_trusted: str) -> None:
    """Raise Refused if QEMU would open other files with the image, or ignore them. Even `qemu-img info` would
    open them and could do harm (CVE-2024-4467).
    """
    external = driver == "qcow2" and be32(head, 4) >= 3 and be64(head, 72) & _EXTERNAL_DATA
    # without a capacity, a descriptor in it names extents
    if external or (driver == "vmdk" and not le64(head, 12)):
        raise Refused(f"{path} keeps its data in other files", hint=if_trusted)
    if driver == "vpc" and head.startswith(b"conectix") and be32(head, 60) == _DIFFERENCING:
        raise Refused(f"{path} is an overlay of another disk", hint="merge it with its parent first")


def _read_info(
    path: str, descriptor: int, node: Mapping[str, object], *, alone: bool
) -> tuple[Mapping[str, object], bool]:
    """Return what qemu-img reports, and whether another program has locked the image. Raises Refused; with
    `alone`, also if it is locked.
    """
    deadline = time.monotonic() + (_PATIENCE_S if alone else 0)
    while (
        info := _qemu_img("info", (descriptor,), node, "--output=json")
    ).code and "lock" in info.errors.split():
        if time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            continue
        if alone:
            raise _in_use(path)
        info = _qemu_img("info", (descriptor,), node, "--output=json", "--force-share")
        return _decode_info(path, descriptor, info), True
    return _decode_info(path, descriptor, info), False


def _in_use(path: str) -> Refused:
    hint = typed("fuser -v", _safe_path(path))
    return Refused(f"{path} is in use by another program, such as a virtual machine", hint=hint)


def _qemu_img(
    command: str, descriptors: tuple[int, ...], node: Mapping[str, object], *options: str
) -> ProgramResult:
    node_options = {**node, "read-only": True}
    node_options.pop("force-share", None)
    limit_s = _ANSWER_S if command == "info" else None
    words = ("qemu-img", command, *options, f"json:{json.dumps(node_options)}")
    return confined.run_confined(*words, disks=descriptors, limit_s=limit_s)


def _decode_info(path: str, descriptor: int, info: ProgramResult) -> Mapping[str, object]:
    if info.code:
        _refuse_missing("qemu-img")
        # Without its description of the file.
        detail = _with_path(info.last_lines, path, descriptor).rpartition("}': ")[2]
        raise Refused(
            f"qemu-img cannot open {path}: {detail}", hint=typed("qemu-img check", _safe_path(path))
        )
    try:
        return load_object(info.output)
    except ValueError as error:
        raise Refused(f"qemu-img did not describe {path}: {error}") from error


def _with_path(words: str, path: str, descriptor: int) -> str:
    return words.replace(f"/proc/self/fd/{descriptor}", path)


def _refuse_unsound(
    path: str, descriptor: int, node: Mapping[str, object], facts: Mapping[str, object], *, writes: bool
) -> None:
    """Raise Refused if a read may not return what was written, or if a write could overwrite other data."""
    special = facts.get("format-specific")
    data = special.get("data") if isinstance(special, dict) else None
    corrupt = isinstance(data, dict) and data.get("corrupt")
    check = _qemu_img("check", (descriptor,), node, "-q")
    if check.code == _DAMAGED:
        why = (
            f"{path} is damaged according to qemu-img check: {_with_path(check.last_lines, path, descriptor)}"
        )
    elif writes and (corrupt or facts.get("dirty-flag")):
        why = (
            f"{path} is marked as corrupt"
            if corrupt
            else f"{path} was not closed by the program that wrote it last"
        )
    elif writes and check.code not in (0, _LEAKS_ONLY):
        why = f"{path} cannot be checked by qemu-img: {_with_path(check.last_lines, path, descriptor)}"
    else:
        return
    raise Refused(why, hint=by_hand(ByHand.VIRTUAL_DISKS, "qemu-img", shell_word(path)))


# A compressed image: it is decompressed once, into a temporary file without a name, with holes for zeros.

_MAX_WRITTEN = 64 * GIB  # data that are not zeros
_MAX_LENGTH = 2 * TIB
_RESERVE = GIB  # or a twentieth of a small file system, which stays free
_PIECE = MIB
_OPTIONS = {"xz": ("--memlimit-decompress=1GiB",)}  # others have their own limits


@contextmanager
def _unpack(
    path: str, descriptor: int, tool: str, say: Callable[[str], object], *, writes: bool
) -> Iterator[_Image]:
    """Yield the disk in a compressed file. Raises Refused, always for writing."""
    safe = _safe_path(path)
    plain = str(Command(tool, ("-dc", safe), output=new_file("disk.img")))
    if writes:
        raise Refused(f"{path} cannot be changed: it is compressed", hint=plain)
    _refuse_missing(tool)
    folder = os.environ.get("TMPDIR") or "/var/tmp"  # /tmp is often in memory
    say(f"{path} is unpacked with {tool} into a temporary file in {folder}")
    with (
        failing_as(Refused, f"it cannot be unpacked into {folder}"),
        tempfile.TemporaryFile(dir=folder) as file,
    ):
        words = (find_program(tool) or tool, "-dc", *_OPTIONS.get(tool, ()))
        with confined.started(words, length=_MAX_LENGTH, stdin=descriptor) as child:
            _write_sparse(cast(IO[bytes], child.stdout), file, path)
            message = cast(IO[bytes], child.stderr).read(4096).decode("utf-8", "replace").strip()
        if child.returncode:
            raise Refused(f"{tool} cannot unpack {path}: {message}", hint=typed(f"{tool} -t", safe))
        filename = f"/proc/self/fd/{file.fileno()}"
        node = {"driver": "raw", "read-only": True, "file": {"driver": "file", "filename": filename}}
        yield _Image(path, file.fileno(), node, plain, plain)


def _refuse_if_nearly_full(file: IO[bytes], path: str, written: int) -> None:
    found = os.fstatvfs(file.fileno())
    reserve = min(_RESERVE, found.f_blocks * found.f_frsize // 20)
    if found.f_bavail * found.f_frsize < reserve + _PIECE:
        text = (
            f"{path} unpacks to more than there is space for: after {format_about(written)}, only the reserve"
            " of"
        )
        hint = "name a folder with more space: TMPDIR=FOLDER"
        raise Refused(f"{text} {format_about(reserve)} is left", hint=hint)


def _write_sparse(stream: IO[bytes], file: IO[bytes], path: str) -> None:
    """Write the stream to the file, with holes for zeros. Raises Refused if it is too long, or before other
    programs run out of space.
    """
    written = 0
    zeros = bytes(_PIECE)
    while piece := stream.read(_PIECE):
        if piece == zeros[: len(piece)]:
            file.seek(len(piece), os.SEEK_CUR)
        else:
            _refuse_if_nearly_full(file, path, written)
            written += file.write(piece)
        if written > _MAX_WRITTEN or file.tell() > _MAX_LENGTH:
            text = (
                f"{path} unpacks to more than {format_about(_MAX_WRITTEN)} of data, or"
                f" {format_about(_MAX_LENGTH)}"
            )
            raise Refused(text)
    file.truncate()


# A partition as a file in which a program may write: what it writes is kept in an overlay, which disappears
# with the file. If possible, the file is in a mount namespace of its server, so other programs do not see it.

_CLUSTER = 4 * KIB  # bytes of a piece of the overlay


@dataclass(frozen=True, slots=True)
class View:
    """A copy-on-write view of a partition."""

    path: str
    _overlay: _Image

    @property
    def is_full(self) -> bool:
        """Return whether the file system of the temporary files has no space for a long change: less than 1
        MiB.
        """
        found = os.fstatvfs(self._overlay.descriptor)
        return found.f_bavail * found.f_frsize < MIB

    def write(self, at: int, data: bytes) -> None:
        """Write to the view, durably. Raises OSError."""
        with opened(self.path, os.O_WRONLY | os.O_CLOEXEC) as descriptor:
            os.pwrite(descriptor, data, at)
            os.fsync(descriptor)

    def changed(self) -> tuple[Extent, ...]:
        """Return what was written, counted from the start of the partition, in ascending order and separate.
        It must have been flushed. Raises Refused.
        """
        overlay = self._overlay
        listed = _qemu_img("map", overlay.descriptors, overlay.node, "--output=json", "--force-share")
        if listed.code:
            raise Refused(f"qemu-img cannot list what was written: {listed.output_tail}")
        pieces = (piece for piece in json.loads(listed.output) if piece["depth"] == 0 and piece["present"])
        return tuple(Extent(piece["start"], piece["length"]) for piece in pieces)


@contextmanager
def copy_on_write_view(path: str, extent: Extent) -> Iterator[View]:
    """Yield a view of the partition at `extent` of a disk or image. The partition must not change meanwhile.

    Raises Refused if there can be none: not root, a program is missing, or there is no /dev/fuse.
    """
    _refuse_missing("qemu-img")
    with failing_as(Refused, f"{path} cannot be shown"), ExitStack() as stack:
        parent = os.environ.get("TMPDIR") or "/var/tmp"  # /tmp is often in memory
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aligntool-", dir=parent)))
        shown = folder / "view"
        overlay = folder / "overlay"
        shown.touch()
        words = ("qemu-img", "create", "-q", "-f", "qcow2", "-o", f"cluster_size={_CLUSTER}")
        made = run_program(*words, str(overlay), str(extent.length))
        if made.code:
            raise Refused(f"qemu-img cannot create {overlay}: {made.output_tail}")
        try:
            partition = stack.enter_context(read_only_loop(path, extent))
        except NoLoop as reason:
            raise Refused(str(reason), hint=typed("modprobe loop")) from reason
        descriptor = stack.enter_context(opened(str(overlay), os.O_RDWR | os.O_CLOEXEC))
        overlay.unlink()
        below = stack.enter_context(opened(partition))
        node = {
            "driver": "qcow2",
            "file": {"driver": "file", "filename": f"/proc/self/fd/{descriptor}"},
            "backing": {
                "driver": "raw",
                "read-only": True,
                "file": {"driver": "host_device", "filename": f"/proc/self/fd/{below}"},
            },
        }
        image = _Image(str(shown), descriptor, node, "", backing=(below,))
        # Without a root of its own, other processes see the view, too. The server parses nothing of the disk,
        # only the overlay that was made for it here.
        in_own_root = not confined.is_unconfined() and confined.has_own_root()
        server = _serve((image,), writes=True, is_view=True, confines=in_own_root)
        stack.callback(end_program, server, signal.SIGTERM, _ANSWER_S)
        yield View(f"/proc/{server.pid}/root{confined.VIEW}" if in_own_root else str(shown), image)


# The server.


def _serve(
    images: tuple[_Image, ...], *, writes: bool, confines: bool, is_view: bool = False
) -> "subprocess.Popen[bytes]":
    """Start the server; return it when it shows all disks. `confines`: it is confined. `is_view`: if so, only
    processes that know the server find the disk, instead of in place of the image. Raises Refused.
    """
    _refuse_missing("qemu-storage-daemon")
    words: list[str] = []
    with ExitStack() as stack:
        places = tuple(os.path.realpath(image.path) for image in images)
        try:
            if not is_view:
                confined.enter_own_mounts()
            connections = _connected(stack, places, mounts=not is_view) if confines else ()
        except OSError as error:
            raise _not_shown(images[0], f"{error.filename}: {error.strerror}") from error
        if connections:
            places = tuple(f"/dev/fd/{connection}" for connection in connections)
        for number, (image, place) in enumerate(zip(images, places, strict=True)):
            node = {**image.node, "node-name": f"disk{number}"}
            export = {
                "type": "fuse",
                "id": f"file{number}",
                "node-name": f"disk{number}",
                "writable": writes,
                "growable": False,
                "mountpoint": place,
            }
            words += ["--blockdev", json.dumps(node), "--export", json.dumps(export)]
        return _started(words, images, connections, writes=writes, in_own_root=is_view)


def _connected(stack: ExitStack, places: Sequence[str], *, mounts: bool) -> tuple[int, ...]:
    """Return a connection to FUSE for each place, and mount it there if `mounts`. Whatever opens the place
    then waits for the server, and fails when no process has the connection any more. Raises OSError.
    """
    connections = tuple(stack.enter_context(opened("/dev/fuse", os.O_RDWR)) for _ in places)
    for connection, place in zip(connections if mounts else (), places, strict=mounts):
        confined.mount_fuse(connection, place)
    return connections


def _started(
    words: Sequence[str],
    images: tuple[_Image, ...],
    connections: tuple[int, ...],
    *,
    writes: bool,
    in_own_root: bool,
) -> "subprocess.Popen[bytes]":
    """Start the server with these words, and return it when it answers. Raises Refused."""
    program = find_program("qemu-storage-daemon") or ""
    disks = tuple(descriptor for image in images for descriptor in image.descriptors)
    prefix = pdeathsig_prefix("TERM")
    before_exec = None
    if connections:
        prefix = ()
        before_exec = confined.confinement(
            program,
            disks=disks,
            writes=writes,
            most_written=None,
            serves=connections,
            view=connections[0] if in_own_root else None,
            end=signal.SIGTERM,
        )
    with tempfile.TemporaryFile() as errors, confined.cannot_be_confined("qemu-storage-daemon"):
        server = subprocess.Popen(  # in its own session, so that Ctrl-C on the terminal does not reach it
            (*prefix, program, *words, "--chardev", "stdio,id=monitor", "--monitor", "monitor"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            pass_fds=(*disks, *connections),
            env={**os.environ, "LC_ALL": "C"},
            preexec_fn=before_exec,
        )
        atexit.register(end_program, server, signal.SIGTERM, _ANSWER_S)  # upon which it closes the images
        # The server opens the monitor last: the greeting means that all disks are shown.
        ready, _, _ = select.select([cast(IO[bytes], server.stdout)], [], [], _ANSWER_S)
        if ready and cast(IO[bytes], server.stdout).readline():
            return server
        end_program(server, signal.SIGTERM, _ANSWER_S)
        errors.seek(0)
        # without the options
        message = errors.read(4096).decode("utf-8", "replace").strip().rpartition("}: ")[2]
    if "lock" in message.split():  # for a writer alone: others may read
        raise _in_use(images[0].path)
    raise _not_shown(images[0], message or "it did not answer")


def _not_shown(image: _Image, why: str) -> Refused:
    return Refused(
        f"qemu-storage-daemon cannot export the disk in {shell_word(image.path)}: {why}",
        hint=image.plain + ("\nor run the same command with sudo" if os.geteuid() else ""),
    )


def _safe_path(path: str) -> str:
    """Return a path that no program takes for an option, nor QEMU for a server ("nbd:host:port")."""
    return f"./{path}" if path.startswith("-") or ":" in path.partition("/")[0] else path


def _refuse_missing(program: str) -> None:
    if find_program(program) is None:
        raise Refused(
            f"{program} is not installed", hint=f"install the package {PACKAGES.get(program, program)}"
        )
