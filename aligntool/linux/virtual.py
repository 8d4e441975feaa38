"""Show the disk inside an image file (qcow2, VMDK, VDI, VHDX, VHD, or packed) in place of the file, to us alone."""

import atexit
import ctypes
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from aligntool.audit.wording import shell_word
from aligntool.documents import load_object
from aligntool.errors import Refusal, Refused, failing_as
from aligntool.formats.numbers import be32, be64, le64
from aligntool.linux.process import PACKAGES, Ended, end_with_us, find_program, run_program
from aligntool.linux.sysfs import READ_ONLY, opened
from aligntool.linux.targets import QEMU_DRIVERS
from aligntool.units import GIB, MIB, TIB, format_about

# qemu-storage-daemon shows the disk as a file by FUSE. It is mounted over the image, in a mount namespace that only
# this process and its children enter: every path stays as it was typed, no other program sees the disk, and nothing is
# left mounted when the last of them is gone, however it ends. docs/decisions/0040 has the reasons.

_ALONE = ("unshare", "--mount", "--propagation", "slave")
_AS_USER = ("--user", "--map-current-user", "--keep-caps")  # only an owner of the namespace may mount in it
_UNLESS_ORPHAN = ("sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')  # ended with us from its first moment on
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000  # <linux/sched.h>, for setns(2), which Python has from 3.12 on
_ANSWER_S = 20.0
_PATIENCE_S = 5.0  # a server that ends with an aligntool that was killed has the lock for a moment
_PAUSE_S = 0.1
_EXTERNAL_DATA = 4  # of the incompatible features: docs/interop/qcow2.txt
_DIFFERENCING = 4  # Virtual Hard Disk Image Format Specification, "Disk Type"
_DAMAGED, _LEAKS_ONLY = 2, 3  # qemu-img(1), check


@dataclass(frozen=True, slots=True)
class _Image:
    """An open file. `node`: QEMU's BlockdevOptions for it. `plain`: the command that makes a raw image of it."""

    path: str
    descriptor: int
    node: Mapping[str, object]
    plain: str


def show_disks(ways: Mapping[str, str], say: Callable[[str], object], *, writes: bool) -> tuple[Refusal, ...]:
    """Let these files be read as the disks in them, by this process and its children, until it ends. `ways`: from
    `find_virtual`. `say`: gets what the user should know. Return why a file stays as it is, for each that does.

    Raises Refused where none can be shown here.
    """
    refusals: list[Refusal] = []
    images: dict[str, _Image] = {}
    with ExitStack() as stack:
        for path, way in ways.items():
            if (place := os.path.realpath(path)) in images:
                continue
            try:
                with failing_as(Refused, f"{path} cannot be opened"):
                    descriptor = stack.enter_context(opened(path, READ_ONLY))
                    look = _looked_into if way in QEMU_DRIVERS else _unpacked
                    images[place] = stack.enter_context(look(path, descriptor, way, say, writes=writes))
            except Refused as refusal:
                refusals.append(Refusal("virtual-disk", path, str(refusal), refusal.hint))
        if images:
            with failing_as(Refused, "the disk inside an image cannot be shown"):
                _enter(_serve(tuple(images.values()), writes=writes), images)
    return tuple(refusals)


# An image of QEMU: what must be known of it before QEMU opens it to write, or at all. QEMU guesses no format, and opens
# no other file that a header names: it may name any file of this machine, or a server.


@contextmanager
def _looked_into(
    path: str, descriptor: int, driver: str, say: Callable[[str], object], *, writes: bool
) -> Iterator[_Image]:
    """Yield the image. Raises Refused where it must not be opened, with the command that helps."""
    word = _word(path)
    to_qcow2 = f"qemu-img convert -f {driver} -O qcow2 {word} new.qcow2"
    _refuse_other_files(path, driver, os.pread(descriptor, 512, 0), to_qcow2)
    if writes and driver != "qcow2":
        raise Refused(f"{path} is not written to: of virtual disks only qcow2 is", hint=to_qcow2)
    if writes and not os.access(path, os.W_OK):
        raise Refused(f"{path} may not be written by this user", hint=f"chmod u+w {word}")
    file = {"driver": "file", "filename": f"/proc/self/fd/{descriptor}"}
    node: dict[str, object] = {"driver": driver, "file": file, "read-only": not writes}
    facts, shared = _facts(path, descriptor, node, writes=writes)
    if backing := facts.get("backing-filename"):
        raise Refused(f"{path} holds only what differs from {shell_word(str(backing))}", hint=to_qcow2)
    if facts.get("encrypted"):
        hint = f"qemu-img convert --object secret,id=key,file=KEYFILE --image-opts driver={driver},"
        hint += f"encrypt.key-secret=key,file.filename={word} -O raw disk.img"
        raise Refused(f"{path} is encrypted", hint=hint)
    if writes and (snapshots := facts.get("snapshots")):
        count = len(cast("list[object]", snapshots))
        raise Refused(f"{path} has internal snapshots, which would keep a copy of all that moves: {count}",
                      hint=f"qemu-img snapshot -l {word}\n{to_qcow2}")  # fmt: skip
    if shared:
        node["force-share"] = True
        say(f"{path} is in use by another program: what is read here may be on its way to be changed")
    else:
        _refuse_unsound(path, descriptor, node, facts, writes=writes)
    if driver == "qcow2":
        node |= {"backing": None, "lazy-refcounts": False}
    if not path.lower().endswith((f".{driver}", ".vhd")):
        say(f"{path} begins as {driver} does, and is read as such")
    yield _Image(path, descriptor, node, f"qemu-img convert -f {driver} -O raw {word} disk.img")


def _refuse_other_files(path: str, driver: str, head: bytes, to_qcow2: str) -> None:
    """Raise Refused where QEMU would open other files with it, or overlook them. Opening them to describe the image
    would be enough to do harm (CVE-2024-4467).
    """
    external = driver == "qcow2" and be32(head, 4) >= 3 and be64(head, 72) & _EXTERNAL_DATA
    if external or (driver == "vmdk" and not le64(head, 12)):  # without a capacity, a descriptor in it names extents
        raise Refused(f"{path} keeps its data in other files", hint=to_qcow2)
    if driver == "vpc" and head.startswith(b"conectix") and be32(head, 60) == _DIFFERENCING:
        raise Refused(f"{path} holds only what differs from another disk", hint="merge it with its parent first")


def _facts(
    path: str, descriptor: int, node: Mapping[str, object], *, writes: bool
) -> tuple[Mapping[str, object], bool]:
    """Return what qemu-img reports, and whether another program has the image locked. Raises Refused, to write also
    where it is locked.
    """
    deadline = time.monotonic() + (_PATIENCE_S if writes else 0)
    while (info := _qemu_img("info", descriptor, node, "--output=json")).code and "lock" in info.errors:
        if time.monotonic() < deadline:
            time.sleep(_PAUSE_S)
            continue
        if writes:
            raise Refused(f"{path} is in use by another program, such as a running machine",
                          hint=f"sudo fuser -v {_word(path)}")  # fmt: skip
        info = _qemu_img("info", descriptor, node, "--output=json", "--force-share")
        return _decoded(path, descriptor, info), True
    return _decoded(path, descriptor, info), False


def _qemu_img(command: str, descriptor: int, node: Mapping[str, object], *options: str) -> Ended:
    asked = {**node, "read-only": True}
    asked.pop("force-share", None)
    limit_s = _ANSWER_S if command == "info" else None
    words = ("qemu-img", command, *options, f"json:{json.dumps(asked)}")
    return run_program(*words, only_reads=True, limit_s=limit_s, pass_fds=(descriptor,))


def _decoded(path: str, descriptor: int, info: Ended) -> Mapping[str, object]:
    if info.code:
        _refuse_missing("qemu-img")
        words = _named(info.last_lines, path, descriptor).rpartition("}': ")[2]  # without its own words for the file
        raise Refused(f"qemu-img cannot open {path}: {words}", hint=f"qemu-img check {_word(path)}")
    try:
        return load_object(info.output)
    except ValueError as error:
        raise Refused(f"qemu-img did not describe {path}: {error}") from error


def _named(words: str, path: str, descriptor: int) -> str:
    return words.replace(f"/proc/self/fd/{descriptor}", path)


def _refuse_unsound(
    path: str, descriptor: int, node: Mapping[str, object], facts: Mapping[str, object], *, writes: bool
) -> None:
    """Raise Refused where what is read may not be what was written, or a write could overwrite something else."""
    special = facts.get("format-specific")
    data = special.get("data") if isinstance(special, dict) else None
    corrupt = isinstance(data, dict) and data.get("corrupt")
    check = _qemu_img("check", descriptor, node, "-q")
    if check.code == _DAMAGED:
        why = f"{path} is damaged, by qemu-img check: {_named(check.last_lines, path, descriptor)}"
    elif writes and (corrupt or facts.get("dirty-flag")):
        why = f"{path} is marked as corrupt" if corrupt else f"{path} was not closed by the program that wrote it last"
    elif writes and check.code not in (0, _LEAKS_ONLY):
        why = f"{path} cannot be checked by qemu-img: {_named(check.last_lines, path, descriptor)}"
    else:
        return
    raise Refused(why, hint=f"qemu-img check -r all {_word(path)}   after a copy was made of it")


# A packed image: it is unpacked once, into a file without a name, with holes for zeros.

_MOST_WRITTEN = 64 * GIB  # data that are not zeros
_LONGEST = 2 * TIB
_PIECE = MIB
_OPTIONS = {"xz": ("--memlimit-decompress=1GiB",)}  # others have limits of their own


@contextmanager
def _unpacked(path: str, descriptor: int, tool: str, say: Callable[[str], object], *, writes: bool) -> Iterator[_Image]:
    """Yield the disk in a packed file. Raises Refused, to write in any case."""
    word = _word(path)
    plain = f"{tool} -dc {word} > disk.img"
    if writes:
        raise Refused(f"{path} is not written to: it is packed", hint=plain)
    _refuse_missing(tool)
    folder = os.environ.get("TMPDIR") or "/var/tmp"  # /tmp is often in memory
    say(f"{path} is unpacked with {tool} into a temporary file in {folder}")
    with failing_as(Refused, f"{folder} cannot hold it unpacked"), tempfile.TemporaryFile(dir=folder) as file:
        with subprocess.Popen(
            (*end_with_us("KILL"), find_program(tool) or tool, "-dc", *_OPTIONS.get(tool, ())),
            stdin=descriptor, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as packed:  # fmt: skip
            try:
                _spread(cast(IO[bytes], packed.stdout), file, path)
            except BaseException:
                packed.kill()
                raise
            words = cast(IO[bytes], packed.stderr).read(4096).decode("utf-8", "replace").strip()
        if packed.returncode:
            raise Refused(f"{tool} cannot unpack {path}: {words}", hint=f"{tool} -t {word}")
        filename = f"/proc/self/fd/{file.fileno()}"
        node = {"driver": "raw", "read-only": True, "file": {"driver": "file", "filename": filename}}
        yield _Image(path, file.fileno(), node, plain)


def _spread(stream: IO[bytes], file: IO[bytes], path: str) -> None:
    """Write the stream to the file, with a hole for each piece of zeros. Raises Refused where it is too long."""
    written, zeros = 0, bytes(_PIECE)
    while piece := stream.read(_PIECE):
        if piece == zeros[: len(piece)]:
            file.seek(len(piece), os.SEEK_CUR)
        else:
            written += file.write(piece)
        if written > _MOST_WRITTEN or file.tell() > _LONGEST:
            raise Refused(
                f"{path} unpacks to more than {format_about(_MOST_WRITTEN)} of data, or {format_about(_LONGEST)}"
            )
    file.truncate()


# The server, and the namespace.


def _serve(images: tuple[_Image, ...], *, writes: bool) -> "subprocess.Popen[bytes]":
    """Start the server; return when it shows every disk. Raises Refused."""
    for program in ("qemu-storage-daemon", "unshare", "setpriv"):
        _refuse_missing(program)
    words: list[str] = []
    for number, image in enumerate(images):
        node = {**image.node, "node-name": f"disk{number}"}
        export = {
            "type": "fuse", "id": f"file{number}", "node-name": f"disk{number}", "writable": writes, "growable": False,
            "mountpoint": os.path.realpath(image.path),
        }  # fmt: skip
        words += ["--blockdev", json.dumps(node), "--export", json.dumps(export)]
    user = _AS_USER if os.geteuid() else ()
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(  # in a session of its own Ctrl-C on the terminal does not reach it
            (*_ALONE, *user, *end_with_us("TERM"), *_UNLESS_ORPHAN, str(os.getpid()), "qemu-storage-daemon", *words,
             "--chardev", "stdio,id=monitor", "--monitor", "monitor"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True,
            pass_fds=[image.descriptor for image in images], env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        atexit.register(_end, server)
        # The monitor is the last thing that it opens: it greets when every disk is there.
        ready, _, _ = select.select([cast(IO[bytes], server.stdout)], [], [], _ANSWER_S)
        if ready and cast(IO[bytes], server.stdout).readline():
            return server
        _end(server)
        errors.seek(0)
        said = errors.read(4096).decode("utf-8", "replace").strip().rpartition("}: ")[2]  # without the options
    path = _word(images[0].path)
    raise Refused(
        f"qemu-storage-daemon cannot show the disk in {path}: {said or 'it gave no answer'}",
        hint=images[0].plain + ("\nor type the same after sudo" if user else ""),
    )


def _enter(server: "subprocess.Popen[bytes]", images: Mapping[str, _Image]) -> None:
    """Enter the namespace of the server. Raises OSError."""
    here = Path.cwd()  # setns leaves us in the root folder
    kinds = _NEW_MOUNTS | (_NEW_USERS if os.geteuid() else 0)
    libc, pidfd = ctypes.CDLL(None, use_errno=True), os.pidfd_open(server.pid)
    try:
        if libc.setns(pidfd, kinds):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(pidfd)
    os.chdir(here)
    for place in images:
        os.stat(place)  # noqa: PTH116 - asks for the owner, without whom the kernel refuses a user to open it for writing


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server, which closes the images."""
    server.terminate()
    try:
        server.wait(_ANSWER_S)
    except subprocess.TimeoutExpired:
        server.kill()
        with suppress(subprocess.TimeoutExpired):  # a disk that does not answer holds it
            server.wait(_PAUSE_S)


def _word(path: str) -> str:
    """Return a path for a shell that no program takes for an option, nor QEMU for a server ("nbd:host:port")."""
    return shell_word(f"./{path}" if path.startswith("-") or ":" in path.partition("/")[0] else path)


def _refuse_missing(program: str) -> None:
    if find_program(program) is None:
        raise Refused(f"{program} is not installed", hint=f"install the package {PACKAGES.get(program, program)}")
