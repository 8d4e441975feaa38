"""Checks of the drawing in docs/architecture.md: layers, names, and the linters as tests."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from aligntool.contents.catalogue import KINDS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aligntool"
SOURCES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "core", "base", "misc", "manager", "handler", "lib"}
# Where untyped data comes in (libparted, TOML and JSON files), and methods that every class has.
MAY_SAY_ANY = ("aligntool/recipes/", "aligntool/documents.py", "aligntool/steps.py")
HEAVY = ("rich", "pyudev", "parted", "_ped", "jsonschema", "importlib.metadata", "email", "asyncio")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
PURE = next(each["source_modules"] for each in CONTRACTS if each["name"].startswith("pure modules"))
TERMINAL_FOLDERS = ("cli", "render")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def _outside(*folders: str) -> list[Path]:
    return [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] not in folders]


def _pure(*but: str) -> list[Path]:
    """Return the files of the modules that the contract keeps independent of the machine."""
    names = {name for name in PURE if name.split(".")[1] not in but}
    return [path for path in SOURCES if {_module(path), _module(path).rpartition(".")[0]} & names]


def _module(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")


def _calls(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


# Linters


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-cache", "."], id="ruff-finds-nothing"),
        pytest.param(["ruff", "format", "--no-cache", "--check", "."], id="ruff-has-nothing-to-format"),
        pytest.param(["mypy", "--strict"], id="mypy-strict-finds-nothing"),
        pytest.param(["lint-imports"], id="imports-go-down-never-up-never-sideways"),
    ],
)
def test_the_linters_report_nothing(command: list[str]) -> None:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


# Names


def test_no_file_has_a_banned_name() -> None:
    words = {_name(path): set(re.split(r"[_.]", path.stem)) | {path.parent.name} for path in SOURCES + TESTS}
    assert not {name: said & BANNED_NAMES for name, said in words.items() if said & BANNED_NAMES}


def test_any_is_used_only_where_untyped_data_enter() -> None:
    places = [
        f"{_name(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Name) and node.id == "Any" and not _name(path).startswith(MAY_SAY_ANY)
    ]
    assert not places


def test_only_the_app_and_options_modules_of_cli_call_print() -> None:
    """Names of disks and files may contain control characters; `print` would pass these on to the terminal."""
    doors = ("aligntool/cli/app.py", "aligntool/cli/options.py")
    places = [
        f"{_name(path)}:{line}"
        for path in SOURCES
        for name, line in _calls(path)
        if name == "print" and not _name(path).startswith(doors)
    ]
    assert not places


def test_no_module_relies_on_assert() -> None:
    asserts = [
        f"{_name(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Assert)
    ]
    assert not asserts


def test_no_file_has_todo_marks_or_paths_of_one_machine() -> None:
    # The words are assembled here so that this file does not match itself.
    marks = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "/wo" + "rk/")))
    text_files = [*SOURCES, *TESTS, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    found = [
        f"{_name(path)}:{number}: {line.strip()}"
        for path in text_files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line)
    ]
    assert not found


# Rule: pure modules do no input or output


def test_only_cli_and_render_call_print_or_input() -> None:
    talking = [
        f"{_name(path)}:{line}: {call}()"
        for path in _outside(*TERMINAL_FOLDERS)
        for call, line in _calls(path)
        if call in {"print", "input"}
    ]
    assert not talking


def test_pure_modules_open_no_files() -> None:
    thinking = _pure("render")
    opening = [f"{_name(path)}:{line}" for path in thinking for call, line in _calls(path) if call in {"open", "exec"}]
    assert len(thinking) > 5
    assert not opening


def test_dry_run_is_used_only_in_the_command_line() -> None:
    # A plan is data: no code that applies one needs a dry-run mode.
    names = [_name(path) for path in _outside("cli") if re.search(r"\bdry_?run\b", path.read_text(), re.IGNORECASE)]
    assert not names


# Modules that open something for writing, and what: docs/architecture.md, "Which code may write to a disk".
WRITERS = {
    "cli/app.py": "closed standard streams, as /dev/null",
    "cli/options.py": "standard error that is closed, as /dev/null",
    "cli/fleet.py": "the audited machines, in a temporary file without a name",
    "demo_disk.py": "its image",
    "linux/block.py": "the disk of a move",
    "linux/confined.py": "the root folder of a confined program, in memory; the map of its user namespace",
    "linux/content.py": "what a checker prints, as a temporary file",
    "linux/fat.py": "copies of a FAT, in a temporary folder",
    "linux/deadline.py": "/dev/null, for children",
    "linux/files.py": "files that are replaced whole",
    "linux/outputs.py": "new files in open folders, for all others",
    "linux/lock.py": "the disk that linux/block.py writes to, locked",
    "linux/loops.py": "a loop device for a shrink",
    "linux/programs.py": "the input and output of a program, in memory",
    "linux/targets.py": "what a captured machine is unpacked to",
    "linux/virtual.py": "the overlay of a view of a partition, in a temporary folder",
    "measure/fio.py": "job files and results, in temporary files",
    "measure/logs.py": "links to the files of a trace, in a temporary folder",
    "measure/record_trace.py": "the log of a trace",
    "measure/run.py": "a file for fio, the lock of a device",
    "measure/targets.py": "whether a target may be written to; digests of test data",
    "measure/timing.py": "the target of a probe",
    "raid/record.py": "the record of an array",
    "raid/steps_luks.py": "the header of a LUKS2 after a power cut; a copy of it, in a temporary folder",
    "raid/steps_md.py": "an array that is flushed",
    "raid/steps_zero.py": "members that were zeroed, to flush them",
    "raid/steps_reformat.py": "how much of an array md compares, in sysfs",
    "raid/steps_settings.py": "settings of an array, in sysfs",
    "raid/steps_sync.py": "md's limit for an array, in sysfs",
    "convert/copying.py": "a new image that a disk is copied to",
    "mover/journal.py": "a journal in a file",
    "realign/named_ranges.py": "a copy of named ranges",
}
OPENERS = {
    "cli/app.py": "/dev/null",
    "cli/options.py": "/dev/null",
    "linux/confined.py": "what every confined program may read; block devices, compared with their descriptors",
    "linux/deadline.py": "/dev/null",
    "linux/held.py": "disks and images, each by its path once",
    "linux/loops.py": "a free loop device",
    "linux/outputs.py": "folders, one by one, and new files in them",
    "linux/sysfs.py": "files of the kernel and of captured machines; documents that the user named",
    "measure/timing.py": "/dev/cpu_dma_latency",
    "raid/steps_reformat.py": "a member of an array in /dev",
}
"""The modules that call os.open, and for what. Disks are opened by `open_held` or `opened`: docs/decisions/0054."""
# Modules that write through a Device, which another module opened.
DEVICE_WRITERS = {
    "convert/copying.py",
    "device.py",
    "layout/layout.py",
    *(
        f"mover/{name}.py"
        for name in ("hidden_signatures", "journal", "numbered_marker", "steps", "table", "whole_disk")
    ),
    "realign/shrink.py",
}
_FLAGS = {"O_RDWR", "O_WRONLY", "O_CREAT", "O_APPEND"}
_MODE = re.compile(r"(?=.*[wxa+])[rwxabt+]{1,3}")
_WRITING = re.compile(
    r"(Named|Spooled)?TemporaryFile|mkstemp|write_(bytes|text)|touch|(sym|hard)link_to|mknod|f?truncate|posix_fallocate"
    r"|p?writev|pwrite|sendfile|splice|copy_file_range|copyfile(obj)?|copy2|copytree"
)


def _opens_for_writing(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _FLAGS
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    modes = [
        each.value for each in (*node.args, *(word.value for word in node.keywords)) if isinstance(each, ast.Constant)
    ]
    return bool(_WRITING.fullmatch(name)) or (
        name in {"open", "fdopen"} and any(_MODE.fullmatch(str(mode)) for mode in modes)
    )


def _writes_to_a_device(node: ast.AST) -> bool:
    """Return whether it is `device.write(offset, data)`; files and streams take one argument."""
    if not isinstance(node, ast.Call) or len(node.args) != 2:
        return False
    return isinstance(node.func, ast.Attribute) and node.func.attr == "write" and ast.unparse(node.func.value) != "os"


def _modules_with(matches: Callable[[ast.AST], bool]) -> set[str]:
    return {path.relative_to(PACKAGE).as_posix() for path in SOURCES if any(map(matches, ast.walk(_tree(path))))}


def test_only_these_modules_open_anything_for_writing() -> None:
    assert _modules_with(_opens_for_writing) == set(WRITERS)


def _opens_a_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "os.open"


def test_only_these_modules_open_a_path_themselves() -> None:
    assert _modules_with(_opens_a_path) == set(OPENERS)


def test_only_these_modules_write_through_a_device() -> None:
    assert _modules_with(_writes_to_a_device) == DEVICE_WRITERS


# Modules that make names in folders: files and folders of their own, in temporary folders that nobody else may enter.
# Every file under a name that the user or the configuration gave is made by linux/outputs.py: decisions/0056.
CREATORS = {
    "cli/app.py": "standard error that is closed, as /dev/null",
    "cli/fleet.py": "a temporary folder",
    "demo_disk.py": "the parts of the demo's image, in a private folder",
    "linux/confined.py": "the root folder of a confined program, in memory",
    "linux/content.py": "a link, in a temporary folder",
    "linux/fat.py": "copies of a FAT, in a temporary folder",
    "linux/outputs.py": "all others",
    "linux/targets.py": "what a captured machine is unpacked to, in a temporary folder",
    "linux/virtual.py": "a mount point and the overlay of a view, in a temporary folder",
    "measure/fio.py": "job files and results, in a temporary folder",
    "measure/logs.py": "links to the files of a trace, in a temporary folder",
    "measure/record_trace.py": "an attempt, in a private folder",
    "measure/run.py": "a request to drop caches, in /proc",
    "raid/steps_luks.py": "a copy of a header, in a temporary folder",
    "raid/steps_reformat.py": "attributes of an array, in sysfs",
    "raid/steps_settings.py": "settings of an array, in sysfs",
    "raid/steps_sync.py": "an attribute of an array, in sysfs",
    "realign/shrink.py": "a temporary mount point",
}
_CREATING = re.compile(
    r"os\.(mkdir|makedirs|link|symlink|rename|replace|mknod|mkfifo)|tempfile\.(mkdtemp|mkstemp|NamedTemporaryFile)"
    r"|.+\.(mkdir|touch|symlink_to|hardlink_to|rename|write_bytes|write_text)"
)


def _creates_a_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func)
    if name == "os.open":
        return bool(re.search(r"O_CREAT|O_TMPFILE", ast.unparse(node)))
    modes = [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
    opens = name.rpartition(".")[2] == "open" and any(re.fullmatch(r"[xwa][bt+]*", mode) for mode in modes)
    return opens or bool(_CREATING.fullmatch(name))


def test_only_one_module_creates_files_under_names_that_were_given() -> None:
    assert _modules_with(_creates_a_name) == set(CREATORS)


# Modules that start programs. A program that parses what others wrote to a disk or image is confined
# (linux/confined.py): it reaches its disk and nothing else.
CONFINED = {
    "linux/checks.py": "checkers of file systems, blkid",
    "linux/confined.py": "whatever these modules give it",
    "linux/content.py": "dumpe2fs, resize2fs -P, xfs_db, btrfs inspect-internal, partclone",
    "linux/fat.py": "mtools, fsck.fat",
    "linux/system.py": "what unpacks an initramfs",
    "linux/virtual.py": "qemu-img, qemu-storage-daemon, what unpacks an image",
    "raid/steps_luks.py": "cryptsetup luksDump, luksUUID",
    "realign/shrink.py": "resize2fs, e2fsck, ntfsresize",
}
NOT_CONFINED = {
    "cli/pager.py": "the pager of the user",
    "cli/partitions.py": "aligntool itself, for the demo",
    "cli/screens.py": "aligntool itself",
    "demo_disk.py": "mkfs, mtools on content that aligntool makes",
    "linux/commands.py": "smartctl and nvme, which read no content of a disk",
    "linux/fat.py": "mkfs.fat, for a new file",
    "linux/files.py": "stat, findmnt, rsvg-convert of a picture that aligntool draws",
    "linux/installed.py": "the programs of an installed system, in its folder as their root",
    "linux/lock.py": "udevadm, systemd-inhibit",
    "linux/luks.py": "cryptsetup open: the kernel's device mapper needs root, its nodes and udev",
    "linux/programs.py": "whatever the others give it",
    "linux/virtual.py": "qemu-img create, for a new file",
    "measure/arrays.py": "mdadm, blkdiscard: drives of a measurement, and md's own superblocks",
    "measure/fio.py": "fio, which writes its own data",
    "measure/logs.py": "blkparse: a log that the user gives, not a disk",
    "measure/record_trace.py": "blktrace, blkparse: what the kernel reports; a command of the user",
    "measure/settings.py": "a shell, which restores settings in sysfs",
    "raid/preflight.py": "modprobe: the running kernel",
    "raid/steps_format.py": "nvme format: it erases an empty drive, or a member that was removed",
    "raid/steps_luks.py": "cryptsetup reencrypt, luksHeaderBackup and so on: device mapper, the kernel's keys",
    "raid/steps_md.py": "mdadm, mkfs; mount, where the kernel parses",
    "raid/steps_settings.py": "udevadm: it reads its rules again",
    "raid/steps_zero.py": "fallocate: it zeroes a part of a member, and reads nothing",
    "raid/steps_sync.py": "mdadm: it lets an array be written to",
    "raid/steps_reformat.py": "nvme format, sfdisk, mdadm: they write to a member of the array",
    "raid/steps_system.py": "systemctl, findmnt, update-initramfs and so on: the system itself",
    "realign/shrink.py": "mount and btrfs, where the kernel parses",
}
STARTING = {
    *("run_program", "run_or_stop", "follow_program", "Popen", "create_subprocess_exec", "create_subprocess_shell"),
    *("subprocess.run", "subprocess.call", "os.system", "os.popen", "check_call", "check_output", "getoutput"),
    *("execv", "execve", "execvp", "execvpe", "execl", "execlp", "posix_spawn", "posix_spawnp", "spawnv", "spawnvp"),
}
STARTING_CONFINED = {"run_confined", "started", "confinement"}
PARSERS = re.compile(
    r"e2fsck|dumpe2fs|resize2fs|xfs_(db|repair)|btrfs|partclone\..+|ntfs.+|fsck\..+|m(dir|copy|attrib|type)|qemu-img"
    r"|qemu-storage-daemon|xz|gzip|zstd|blkid|lz4|bzip2|lzop|debugfs|tune2fs|hivex.+"
)


def _started_by(node: ast.AST) -> str:
    """Return the name of a called function, without its module unless STARTING has it; "" for anything else."""
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return name if name in STARTING else name.rpartition(".")[2]


def test_each_module_that_starts_a_program_states_how() -> None:
    assert _modules_with(lambda node: _started_by(node) in STARTING_CONFINED) == set(CONFINED)
    assert _modules_with(lambda node: _started_by(node) in STARTING) == set(NOT_CONFINED) | {"linux/confined.py"}


def test_no_program_that_parses_content_is_started_unconfined() -> None:
    allowed = ("qemu-img create", "btrfs filesystem")
    found = [
        f"{_name(path)}:{node.lineno}: {words}"
        for path in SOURCES
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Call) and _started_by(node) in STARTING
        for words in [" ".join(str(each.value) for each in node.args if isinstance(each, ast.Constant))]
        if PARSERS.fullmatch(words.partition(" ")[0]) and not words.startswith(allowed)
    ]
    assert not found


# Instructions for contributors

# Outside of contents/, only these know a kind of content by its name; all others ask the kind.
NAMING_KINDS = {
    "audit/array_boot.py": "mount points of fstab",
    "change.py": "what users write: recipes, --fs",
    "demo_disk.py": "what the demo contains",
    "formats/other_tables.py": "a sector 0 without a table",
    "inventory.py": "the UUID of an array",
    "linux/devices.py": "names of device nodes",
    "linux/in_use.py": "file systems of the running kernel",
    "linux/lease.py": "file systems of the running kernel",
    "linux/open_files.py": "file systems of the running kernel",
    "linux/sysfs.py": "file systems of the running kernel",
    "measure/results.py": "file systems of the running kernel",
}


def test_only_contents_know_a_kind_of_content_by_its_name() -> None:
    names = {kind.name for kind in KINDS} - {"qcow2", "vmdk", "vdi", "vhdx"}  # which are also formats of qemu-img
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in SOURCES
        if path.parent.name != "contents"
        for node in ast.walk(_tree(path))
        if _compares_with(node, names) or _lists_several_of(node, names)
    }
    assert found == set(NAMING_KINDS)


def _compares_with(node: ast.AST, names: set[str]) -> bool:
    sides = [node.value] if isinstance(node, ast.MatchValue) else []
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
    return any(isinstance(each, ast.Constant) and each.value in names for side in sides for each in ast.walk(side))


def _lists_several_of(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
        return False
    return len(names & {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}) > 1


# Rule: a bare size or offset is bytes


def test_planning_and_judging_use_no_sector_arithmetic() -> None:
    turning = [
        f"{_name(path)}:{node.lineno}: {ast.unparse(node)}"
        for path in _pure("contents", "formats")
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.BinOp) and _is_sector_arithmetic(node)
    ]
    assert not turning


def _is_sector_arithmetic(node: ast.BinOp) -> bool:
    sides = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
    if isinstance(node.op, ast.Mult | ast.FloorDiv):
        return 512 in sides
    return isinstance(node.op, ast.LShift | ast.RShift) and 9 in sides


# Start-up

IMPORT_EVERYTHING = """
import importlib, json, sys
effects = []
READ_ONLY = {"r", "rb", None}
def watch(event, arguments):
    if event in {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "os.mkdir",
                 "os.remove", "os.rename", "os.putenv", "shutil.copyfile"}:
        effects.append(f"{event} {arguments!r}")
    elif event == "ctypes.dlopen" and arguments[0] is not None:  # None: ctypes itself, asking for the interpreter
        effects.append(f"dlopen {arguments[0]}")
    elif event == "open" and str(arguments[0]).startswith(("/dev/", "/sys/", "/proc/", "/run/")):
        effects.append(f"open {arguments[0]}")
    elif event == "open" and arguments[1] not in READ_ONLY and "__pycache__" not in str(arguments[0]):
        effects.append(f"open {arguments[0]} {arguments[1]}")
sys.addaudithook(watch)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(effects))
"""


def _modules() -> list[str]:
    names = (path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".") for path in SOURCES)
    return [name.removesuffix(".__init__") for name in names]


def test_importing_every_module_has_no_effect_and_no_output() -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", IMPORT_EVERYTHING, *_modules()],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout) == []


def test_starting_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, aligntool.cli.app; print(*sys.modules, sep='\\n')"
    loaded = set(_python("-c", code).split())
    assert "aligntool.cli" in loaded
    heavy = {name for name in HEAVY if name in loaded}
    # Modules that typer itself loads are not counted.
    assert not heavy - loaded_by_typer()
    assert not {"rich", "pyudev", "parted", "_ped", "jsonschema"} & loaded
    assert not {"aligntool.change", "aligntool.steps", "aligntool.inventory", "aligntool.linux.look"} & loaded


@cache
def loaded_by_typer() -> set[str]:
    return set(_python("-c", "import sys, typer; print(*sys.modules, sep='\\n')").split())


AUDIT = """
import sys
from aligntool.cli.app import main
try:
    main()
finally:
    print(*(name for name, module in sys.modules.items() if "__late__" not in vars(module)), sep="\\n", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def loaded_by_an_audit(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the modules that the audit of an image without a finding loads."""
    image = tmp_path_factory.mktemp("audit") / "disk.img"
    with image.open("wb") as file:
        file.truncate(16 * 1024 * 1024)
    subprocess.run(["sfdisk", "-q", image], input="label: gpt\nstart=1MiB\n", text=True, check=True, timeout=300)
    words = [sys.executable, "-c", AUDIT, "audit", str(image)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


@pytest.mark.needs_tools("sfdisk")
def test_an_audit_without_a_finding_loads_only_necessary_modules(loaded_by_an_audit: set[str]) -> None:
    needless = {*HEAVY, "jinja2", "aligntool.realign.planning", "aligntool.render.disk_map"}
    assert not needless & loaded_by_an_audit - loaded_by_typer()


def test_starting_replaces_nothing_of_python_or_typer() -> None:
    replacing = re.compile(r"meta_path|__class__|\bsetattr\(|\bgc\.|__dict__")
    assert not [_name(path) for path in SOURCES if "aligntool/cli/" in str(path) and replacing.search(path.read_text())]


def _python(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout


# The drawing itself


def test_tests_have_the_folders_of_the_program() -> None:
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").is_file()}
    program = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders - program == {"ansible", "bench", "boots", "fuzz", "golden", "lab", "schemas"} & folders


def test_every_module_has_a_layer_in_the_contract() -> None:
    contract = (ROOT / "pyproject.toml").read_text()
    layers = re.search(r"^layers = \[(.*?)^\]", contract, re.MULTILINE | re.DOTALL)
    assert layers
    placed = set(re.findall(r"\w+", layers[1]))
    modules = {path.stem if path.is_file() else path.name for path in PACKAGE.iterdir() if path.name[0] != "."}
    assert modules - {"__init__", "__pycache__", "py", "schemas", "locale"} <= placed


def test_every_module_has_a_docstring() -> None:
    silent = [_name(path) for path in SOURCES if not ast.get_docstring(_tree(path))]
    assert not silent


def test_the_init_of_the_package_contains_no_code() -> None:
    """A program in the package's own __init__ is a common start of import cycles."""
    kinds = [type(node) for node in _tree(PACKAGE / "__init__.py").body]
    assert kinds == [ast.Expr, ast.Assign]


def test_the_tests_do_not_use_mock() -> None:
    patching = [
        _name(path)
        for path in TESTS
        if "mock" in path.read_text()  # a tree takes far longer
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ImportFrom | ast.Import) and any("mock" in alias.name for alias in node.names)
    ]
    assert not patching


def _orphaned_strings(tree: ast.Module) -> Iterator[int]:
    """Return the lines of string statements that document nothing: not in a module, class or function, nor after an
    assignment.
    """
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            statements = body if isinstance(body, list) else []
            for before, each in zip([None, *statements], statements, strict=False):
                is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
                if (
                    is_text
                    and isinstance(each.value.value, str)
                    and not (
                        isinstance(before, ast.Assign | ast.AnnAssign)
                        or (before is None and name == "body" and isinstance(node, documented))
                    )
                ):
                    yield each.lineno


def test_every_string_statement_is_a_docstring() -> None:
    """A docstring whose constant was moved elsewhere would document the wrong name."""
    assert list(_orphaned_strings(ast.parse('"""Doc."""\nA = 1\n"""Of A."""\nfrom b import c\n"""Of nothing."""'))) == [
        5
    ]
    found = {_name(path): lines for path in SOURCES if (lines := list(_orphaned_strings(_tree(path))))}
    assert not found


def test_the_kernel_s_folders_are_not_searched_with_glob() -> None:
    """`Path.glob` fails if a folder vanishes during the search, as a process or device does; `live_paths` does not."""
    on_disks = {"aligntool/linux/fat.py", "aligntool/raid/preflight.py", "aligntool/raid/steps_system.py"}
    searching = {
        _name(path)
        for path in _outside(*TERMINAL_FOLDERS)
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.Attribute) and node.attr in ("glob", "rglob")
    }
    assert searching - {"aligntool/demo_disk.py"} == on_disks
