"""Start programs that parse the content of disks and images, so that they reach nothing but what they are
given.

Such a program is as exposed as a network service: whoever wrote the disk chose its input. docs/decisions/0053
has the reasons for what is below.
"""

import ctypes
import errno
import os
import resource
import signal
import stat
import struct
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from aligntool.errors import Refused
from aligntool.linux.programs import ProgramResult, find_program, pdeathsig_prefix, run_program
from aligntool.linux.sysfs import opened
from aligntool.units import GIB, MIB

# Two layers, each where the kernel and the rights of the user allow it; without either, nothing is started.
#
# A mount namespace with a root of its own, in which nothing else exists: no path leads anywhere, not even
# that of a socket. Together with it, a network without an interface. It needs CAP_SYS_ADMIN, or a user
# namespace.
#
# Landlock, which any user has from Linux 5.13 on: files can be opened only below those that are allowed. What
# a descriptor in /proc/self/fd opens again is judged by its file, not by a path.

# It runs in a forked child, for every program: this uses strings and system calls, no path objects.
# ruff: noqa: PTH103, PTH114, PTH115, PTH120, PTH211

# What programs need to run, in either layer. Nothing of it is secret, and all of it is read-only.
_PROGRAMS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",  # programs, libraries, locales
    "/nix/store", "/gnu/store",  # the same, on NixOS and Guix
    "/etc/alternatives",  # links of /usr/bin to one of several programs
    # where the loader finds libraries outside of /usr/lib
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/e2fsck.conf", "/etc/mke2fs.conf", "/etc/mtools.conf",  # settings of e2fsprogs and mtools
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")  # /dev/null also for writing
_SELF = "/proc/self"  # its descriptors; that nothing it sees is mounted

_NOBODY = 65534  # the kernel's overflow user, "nobody" almost everywhere

# Limits. They end a program that a crafted disk makes run away, and must never end an honest one: a check of
# a full disk of 16 TiB takes hours, and e2fsck(8), xfs_repair(8) and btrfs-check(8) keep maps of all blocks
# in memory.
_LEAST_MEMORY = 4 * GIB  # of address space: stacks of threads and mapped libraries count
_BYTES_PER_MEMORY = 256  # of the disk, for each further byte of memory: 64 GiB for 16 TiB
_LEAST_CPU_S = 300
_BYTES_PER_CPU_S = 64 * MIB  # of the disk; three days for 16 TiB
_LEAST_TIME_S = 1800
_BYTES_PER_TIME_S = 8 * MIB  # of the disk: as slow as it is read, in any order
_MOST_PRINTED = 64 * MIB  # is kept in memory
_MOST_WRITTEN = 4 * GIB  # to a file that is given for it: a map of 16 TiB, a file of a FAT

# <linux/landlock.h>. The numbers of the system calls are those of every architecture but alpha and mips,
# which answer ENOSYS to them.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV  # the others are those of folders
# The number of rights that each version of the interface knows, from version 1 on: REFER since 2, TRUNCATE
# since 3, IOCTL_DEV since 5.
_KNOWN_RIGHTS = (13, 14, 15, 15, 16)
_TCP_SINCE = 4
_TCP = 0b11  # bind, connect
_SCOPES_SINCE = 6
_SCOPES = 0b11  # abstract sockets, signals
_RUN = _EXECUTE | _READ_FILE | _READ_DIR
_FILL = _READ_FILE | _READ_DIR | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h>
_NEWNS = 0x20000
_NEWUSER = 0x10000000
_NAMESPACES = _NEWNS | 0x08000000 | 0x40000000  # mounts, System V IPC, network
_RDONLY = 1
_NOSUID = 2
_NODEV = 4
_NOEXEC = 8
_REMOUNT = 1 << 5
_BIND = 1 << 12
_REC = 1 << 14
_SLAVE = 1 << 19
_RELATIME = 1 << 21
_ROOT_FLAGS = _RDONLY | _NOSUID | _NODEV | _NOEXEC
_KEPT_FLAGS = 0xF | 1 << 10 | 1 << 11  # those above, noatime, nodiratime; statvfs(3) has the same numbers
_STATVFS_RELATIME = 1 << 12
_DETACH = 2
_PDEATHSIG = 1
_KEEPCAPS = 8
_CAPBSET_DROP = 24
_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_AMBIENT_RAISE = 2
_AMBIENT_CLEAR_ALL = 4
_CAP_VERSION = 0x20080522
_DAC_OVERRIDE = 1  # of root: to open a disk that another user owns

_FUSE = "fd={},rootmode=100000,user_id={},group_id={},default_permissions,allow_other,max_read=1048576"
"""Options of a mount whose root is a file (fuse(4), filesystems/fuse.rst). QEMU's export answers reads of 1
MiB.
"""
VIEW = "/view"  # in the private root

_unconfined = False


def allow_unconfined() -> None:
    """Start all programs without confinement from now on: the user wants that (`--unconfined`)."""
    global _unconfined
    _unconfined = True


def is_unconfined() -> bool:
    """Return whether the user wants programs to be started without confinement."""
    return _unconfined


def run_confined(
    *words: str,
    disks: tuple[int, ...] = (),
    writes: bool = False,
    folder: Path | None = None,
    output: IO[str] | None = None,
    limit_s: float | None = None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> ProgramResult:
    """Run a program that parses content to its end. It ends when aligntool is killed.

    `disks`: descriptors that it inherits, and may open again as /proc/self/fd/N, block devices also by their
    own path: btrfs resolves the former to it (common/path-utils.c, path_canonicalize). `writes`: also for
    writing. `folder`: where it may create files. `limit_s`: terminate it after this time, instead of the
    limit for disks of this size. For others see `run_program`. Raises Refused if it cannot be confined,
    ValueError for any other path of a device.
    """
    _check_devices(words, disks, folder)
    program = find_program(words[0])
    before_exec = None
    if program and not _unconfined:
        most = _MOST_WRITTEN if output or folder else _MOST_PRINTED
        before_exec = confinement(program, disks=disks, writes=writes, folder=folder, most_written=most)
    with cannot_be_confined(words[0]):
        return run_program(
            *words,
            only_reads=True,
            limit_s=limit_s or time_limit(disks),
            output=output,
            stdin=stdin,
            pass_fds=disks,
            environment={"MALLOC_ARENA_MAX": "2", **(environment or {})},
            before_exec=before_exec,
        )


def _check_devices(words: Iterable[str], disks: Iterable[int], folder: Path | None) -> None:
    """Raise ValueError for a path in /dev that the program does not find, such as a link: it may take a
    device that is not there for one without content.
    """
    known = [os.readlink(f"/proc/self/fd/{disk}") for disk in disks]
    for word in words:
        is_temporary = folder is not None and word.startswith(f"{folder}/")
        if word.startswith("/dev/") and word not in known and not is_temporary:
            raise ValueError(f"{word} is not the path of a disk that is given")


@contextmanager
def started(words: tuple[str, ...], *, length: int, stdin: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a program that unpacks `stdin`, with a pipe for its output and another for its errors. It is
    killed when the context or aligntool ends. `length`: bytes that an honest one may have to unpack. `words`:
    with its path.

    Raises Refused if it cannot be confined.
    """
    prefix = pdeathsig_prefix("KILL")
    before_exec = None
    if not _unconfined:
        prefix = ()
        before_exec = confinement(words[0], length=length)
    with cannot_be_confined(Path(words[0]).name):
        child = subprocess.Popen(
            (*prefix, *words),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=before_exec,
        )
    with child:
        try:
            yield child
        except BaseException:
            child.kill()
            raise


@contextmanager
def cannot_be_confined(program: str) -> Iterator[None]:
    """Raise Refused with the way out if a program was not started because the kernel cannot confine it."""
    try:
        yield
    except subprocess.SubprocessError as error:
        text = f"{program} is not started: it cannot be confined here, neither by Landlock nor by namespaces"
        hint = "to let programs that parse the disk reach all that you can, add: --unconfined"
        raise Refused(text, hint=hint, code="unconfined") from error


def time_limit(disks: tuple[int, ...]) -> float:
    """Return after how many seconds a program that parses these disks has run away."""
    return _LEAST_TIME_S + sum(map(_size_of, disks)) / _BYTES_PER_TIME_S


def confinement(
    program: str,
    *,
    disks: tuple[int, ...] = (),
    writes: bool = False,
    folder: Path | None = None,
    most_written: int | None = _MOST_PRINTED,
    length: int = 0,
    serves: tuple[int, ...] = (),
    view: int | None = None,
    end: signal.Signals = signal.SIGKILL,
) -> Callable[[], None]:
    """Return what confines a child of this process before it executes `program`, which must be a path.

    `disks`, `writes`, `folder`: see `run_confined`. `most_written`: bytes of the longest file that it may
    write; None: any, and it may run for as long as aligntool does. `length`: bytes that it parses beside
    those of `disks`. `serves`: descriptors of FUSE, which it finds as /dev/fd/N; it needs a root folder of
    its own for that. `view`: one of them, to be mounted at VIEW there. `end`: the signal that it gets when
    aligntool is killed.
    """
    access = _READ_FILE | _IOCTL_DEV | (_WRITE_FILE | _TRUNCATE if writes else 0)
    length += sum(map(_size_of, disks))
    only_devices = all(stat.S_ISBLK(os.fstat(disk).st_mode) for disk in disks)
    return _Confinement(
        parent=os.getpid(),
        places=(*_places(program), *(((str(folder), _FILL),) if folder else ())),
        disks=disks,
        access=access,
        memory=_LEAST_MEMORY + length // _BYTES_PER_MEMORY,
        cpu_s=_LEAST_CPU_S + length // _BYTES_PER_CPU_S if most_written else resource.RLIM_INFINITY,
        most_written=most_written or resource.RLIM_INFINITY,
        as_nobody=os.geteuid() == 0 and only_devices and not folder and not serves,
        serves=serves,
        view=view,
        end=end,
    )


def _size_of(descriptor: int) -> int:
    """Return the bytes of a disk or file; 0 for anything else."""
    status = os.fstat(descriptor)
    if not stat.S_ISBLK(status.st_mode):
        return status.st_size
    with opened(f"/proc/self/fd/{descriptor}") as own:  # its position is not that of the program
        return os.lseek(own, 0, os.SEEK_END)


def _places(program: str) -> Iterator[tuple[str, int]]:
    """Yield the paths that every program needs, and the rights to them."""
    yield from ((path, _RUN) for path in _PROGRAMS)
    if not Path(os.path.realpath(program)).is_relative_to("/usr"):
        yield str(Path(program).parent), _RUN
    yield from ((path, _READ_FILE | _WRITE_FILE) for path in _DEVICES)
    yield _SELF, _READ_FILE | _READ_DIR


@dataclass(frozen=True, slots=True)
class _Confinement:
    """The confinement of a program, applied by a call in the child process that will execute it. It fails
    closed: an exception keeps the program from being started.
    """

    parent: int
    places: tuple[tuple[str, int], ...]
    disks: tuple[int, ...]
    access: int  # to the disks
    memory: int
    cpu_s: int
    most_written: int
    as_nobody: bool
    serves: tuple[int, ...]
    view: int | None
    end: signal.Signals

    def __call__(self) -> None:
        opened_places = []
        private = _own_namespaces()
        for path, access in self.places:
            with suppress(FileNotFoundError, NotADirectoryError):
                opened_places.append((path, access, os.open(path, os.O_PATH | os.O_CLOEXEC)))
        private = private and self._has_own_root(opened_places)
        version = landlock_version()
        if not private:
            if self.serves or not version:
                raise OSError(errno.ENOSYS, "neither namespaces nor Landlock")
            opened_places += self._zone_models()
        _drop_rights(as_nobody=self.as_nobody)
        if version:
            self._restrict_files(version, opened_places)
        self._limit()
        _libc().prctl(_PDEATHSIG, self.end, 0, 0, 0)
        if os.getppid() != self.parent:  # killed before
            raise ProcessLookupError

    def _limit(self) -> None:
        for name, most in (
            (resource.RLIMIT_AS, self.memory),
            (resource.RLIMIT_CPU, self.cpu_s),
            (resource.RLIMIT_FSIZE, self.most_written),
            (resource.RLIMIT_CORE, 0),  # of a disk's content
        ):
            hard = resource.getrlimit(name)[1]
            # RLIM_INFINITY is -1
            least = min((most, hard), key=lambda limit: limit if limit >= 0 else float("inf"))
            # xfs_repair(8) does not run if it cannot lift this one (repair/init.c, increase_rlimit).
            resource.setrlimit(name, (least, hard if name == resource.RLIMIT_FSIZE else least))

    # A root folder of its own

    def _has_own_root(self, opened_places: list[tuple[str, int, int]]) -> bool:
        """Enter a root folder in which only the places and the disks exist; return whether that is possible
        here.
        """
        shown = (*opened_places, *self._opened_disks())
        base = "/tmp"  # any folder that is always there: only this process sees what is mounted over it
        if _libc().mount(b"aligntool", base.encode(), b"tmpfs", _ROOT_FLAGS & ~_RDONLY, b"mode=755,size=64k"):
            return False
        try:
            for path, access, descriptor in shown:
                _show(base, path, descriptor, read_only=not access & _WRITE_FILE)
            Path(base, "proc/mounts").symlink_to("self/mounts")
            self._show_exports(base)
            _called("mount", _libc().mount(None, base.encode(), None, _REMOUNT | _BIND | _ROOT_FLAGS, None))
            # All other mounts leave this namespace: a file system that is unmounted meanwhile must not stay
            # in use.
            os.chdir(base)
            _called("pivot_root", _libc().pivot_root(b".", b"."))
            _called("umount", _libc().umount2(b".", _DETACH))
            os.chdir("/")
        except OSError:
            if self.serves:
                raise
            _libc().umount2(base.encode(), _DETACH)
            return False
        return True

    def _opened_disks(self) -> Iterator[tuple[str, int, int]]:
        """Yield the block devices, opened again: a mount needs a descriptor of this namespace. The path of an
        image is not looked up again.
        """
        for disk in self.disks:
            status = os.fstat(disk)
            path = os.readlink(f"/proc/self/fd/{disk}")
            with suppress(OSError):
                if stat.S_ISBLK(status.st_mode):
                    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                    if os.path.samestat(os.fstat(descriptor), status):
                        yield path, self.access, descriptor

    def _zone_models(self) -> Iterator[tuple[str, int, int]]:
        """Yield the files that say whether a disk is zoned. fsck.f2fs fails if one is there and may not be
        read, but not without one (f2fs-tools, lib/libf2fs_zoned.c, f2fs_get_zoned_model).
        """
        for disk in self.disks:
            number = os.fstat(disk).st_rdev
            path = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/zoned"
            with suppress(OSError):
                yield path, _READ_FILE, os.open(path, os.O_PATH | os.O_CLOEXEC)

    def _show_exports(self, base: str) -> None:
        """Make a file /dev/fd/N for each descriptor of FUSE.

        libfuse takes this name for a descriptor that was mounted by someone else, without looking at the file
        (lib/helper.c, fuse_mnt_parse_fuse_fd); QEMU exports only over a regular file (block/export/fuse.c,
        is_regular_file). So the server itself mounts nothing.
        """
        for descriptor in self.serves:
            _make_file(f"{base}/dev/fd/{descriptor}")
        if self.view is not None:
            _make_file(base + VIEW)
            mount_fuse(self.view, base + VIEW)

    # Landlock

    def _restrict_files(self, version: int, opened_places: list[tuple[str, int, int]]) -> None:
        """Deny every access to files that this version of Landlock knows, but those that are listed."""
        handled = (1 << _KNOWN_RIGHTS[min(version, len(_KNOWN_RIGHTS)) - 1]) - 1
        network = _TCP if version >= _TCP_SINCE else 0
        scopes = _SCOPES if version >= _SCOPES_SINCE else 0
        # struct landlock_ruleset_attr: an older kernel accepts a longer one if the rest is zero.
        attributes = struct.pack("=QQQ", handled, network, scopes)
        rules = _called("landlock", _libc().syscall(_CREATE_RULESET, attributes, len(attributes), 0))
        for access, descriptor in (
            *((access, descriptor) for _, access, descriptor in opened_places),
            *((self.access, disk) for disk in self.disks),
        ):
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                access &= _OF_FILES
            # struct landlock_path_beneath_attr, packed
            rule = struct.pack("=Qi", access & handled, descriptor)
            if (
                _libc().syscall(_ADD_RULE, rules, _PATH_BENEATH, rule, 0)
                and ctypes.get_errno() != errno.EBADFD
            ):
                # EBADFD: of no file system, such as a pipe; Landlock does not restrict those
                _called("landlock", -1)
        _called("landlock", _libc().syscall(_RESTRICT_SELF, rules, 0))
        os.close(rules)


def _show(base: str, path: str, descriptor: int, *, read_only: bool) -> None:
    """Show what is open as `descriptor` below `base`, under the same path. Raises OSError."""
    target = base + path
    source = f"/proc/self/fd/{descriptor}".encode()
    if os.path.lexists(target):
        return
    # /bin, where it is /usr/bin
    if os.path.islink(path) and os.readlink(path).lstrip("/").startswith("usr/"):
        os.symlink(os.readlink(path), target)
        return
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(target)
    else:
        _make_file(target)
    _called("mount", _libc().mount(source, target.encode(), None, _BIND, None))
    if read_only:
        found = os.statvfs(target).f_flag  # an unprivileged user must keep these
        flags = found & _KEPT_FLAGS | (_RELATIME if found & _STATVFS_RELATIME else 0)
        flags |= _REMOUNT | _BIND | _RDONLY | _NOSUID
        _called("mount", _libc().mount(None, target.encode(), None, flags, None))


def _make_file(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def mount_fuse(descriptor: int, target: str) -> None:
    """Mount an open /dev/fuse over a file. Both need the same user namespace. Raises OSError."""
    options = _FUSE.format(descriptor, os.geteuid(), os.getegid()).encode()
    _called("mount", _libc().mount(b"aligntool", target.encode(), b"fuse", _NOSUID | _NODEV, options))


def enter_own_mounts() -> None:
    """Let this process and its children have mounts of their own, which no other process sees. A user has all
    rights to them afterwards. Raises OSError.
    """
    _unshare(_NEWNS)


_SHARED = ("/dev", "/proc", "/sys")
_UDEV = "/run/udev"


def enter_root(root: str) -> None:
    """Give this process and its children the folder as their root, with the devices and the kernel's files of
    this machine in it, and an empty /run with udev's database. Raises OSError.

    These mounts are seen by no other process, and vanish with the last of these, however it ends. Every path
    in the folder is resolved after it has become the root, so no link in it leads out.
    """
    enter_own_mounts()
    outside = os.open("/", _FOLDER)
    udev = os.open(_UDEV, _FOLDER) if Path(_UDEV).is_dir() else None
    os.chroot(root)
    targets = {place: os.open(place, _FOLDER) for place in (*_SHARED, "/run")}
    os.fchdir(outside)
    os.chroot(".")
    for place in _SHARED:
        _mount(place, f"/proc/self/fd/{targets[place]}", None, _BIND | _REC)
    _mount("aligntool", f"/proc/self/fd/{targets['/run']}", "tmpfs", _NOSUID | _NODEV)
    os.chroot(root)
    os.chdir("/")
    Path("/run/lock").mkdir()
    if udev is not None:
        Path(_UDEV).mkdir()
        _mount(f"/proc/self/fd/{udev}", _UDEV, None, _BIND)


_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    words = (source.encode(), target.encode(), kind.encode() if kind else None)
    _called("mount", _libc().mount(*words, flags, None))


def has_own_root() -> bool:
    """Return whether programs can have a root folder of their own: not in a chroot whose root is no mount
    point.
    """
    child = os.fork()
    if not child:
        os._exit(not _own_namespaces())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _own_namespaces() -> bool:
    """Enter namespaces of mounts, network and IPC; return whether that is possible."""
    try:
        _unshare(_NAMESPACES)
    except OSError:
        return False
    return True


def _unshare(kinds: int) -> None:
    """Enter new namespaces; of a user with a user namespace that owns them. Raises OSError.

    In a chroot whose root is no mount point, mounts cannot be hidden from other processes, and it fails.
    """
    user = os.geteuid()
    group = os.getegid()
    _called("unshare", _libc().unshare(kinds | (_NEWUSER if user else 0)))
    if user:
        Path("/proc/self/setgroups").write_text("deny")  # user_namespaces(7): before gid_map
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _called("mount", _libc().mount(None, b"/", None, _SLAVE | _REC, None))


def _drop_rights(*, as_nobody: bool) -> None:
    """Keep no right but that of root to open files of others; `as_nobody`: as another user, who owns
    nothing.
    """
    libc = _libc()
    is_root = os.geteuid() == 0
    _called("prctl", libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    libc.prctl(_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    for right in range(64):
        if right != _DAC_OVERRIDE:
            libc.prctl(_CAPBSET_DROP, right, 0, 0, 0)  # EINVAL for the last ones, EPERM without any right
    if as_nobody:
        libc.prctl(_KEEPCAPS, 1, 0, 0, 0)
        try:
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
        except OSError:  # a container in which nobody has no number
            as_nobody = False
    kept = 1 << _DAC_OVERRIDE if is_root else 0
    header = struct.pack("=Ii", _CAP_VERSION, 0)
    sets = (kept, kept, kept if as_nobody else 0, 0, 0, 0)
    if libc.capset(header, struct.pack("=6I", *sets)):  # a container may not have this right
        _called("capset", libc.capset(header, bytes(24)))
    elif as_nobody:
        libc.prctl(_CAP_AMBIENT, _AMBIENT_RAISE, _DAC_OVERRIDE, 0, 0)


def landlock_version() -> int:
    """Return the version of the kernel's Landlock; 0: it has none, or it is disabled."""
    return max(int(_libc().syscall(_CREATE_RULESET, None, 0, _VERSION)), 0)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    return libc


def _called(what: str, result: int) -> int:
    """Return the result of a function of the C library. Raises OSError."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result
