"""The targets of the Makefile and their scripts, on machines with fewer programs than this one."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import find_tool, run

ROOT = Path(__file__).parent.parent
SETUP = ROOT / ".ci" / "setup"
TARGETS = (
    "help",
    "demo",
    "test",
    "test-all",
    "audit",
    "bench",
    "fuzz",
    "lab",
    "transcript",
    "messages",
    "man",
    "site",
    "dist",
    "deb",
    "rpm",
    "test-packages",
    "install",
    "uninstall",
    "clean",
)
# The tools that the scripts themselves use, all of them in the smallest Debian.
PLAIN_TOOLS = (
    "sh",
    "cat",
    "cut",
    "dirname",
    "env",
    "grep",
    "mktemp",
    "readlink",
    "rm",
    "sed",
    "sort",
    "tail",
    "tee",
    "tr",
)

Machine = Callable[..., dict[str, str]]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return the environment of a bare machine: the plain tools, and these programs as shell scripts. All calls of
    those are written to `calls`.
    """

    def make(**programs: str) -> dict[str, str]:
        folder = tmp_path / "bin"
        folder.mkdir()
        for name in PLAIN_TOOLS:
            found = find_tool(name)
            assert found, f"{name} is missing here"
            (folder / name).symlink_to(found)
        for name, body in programs.items():
            program = folder / name.replace("_", "-")
            program.write_text(f'#!/bin/sh\necho "{program.name} $*" >> "{tmp_path}/calls"\n{body}\n')
            program.chmod(0o755)
        return {"PATH": str(folder), "LC_ALL": "C"}

    if Path("/usr/sbin").resolve() == Path("/usr/bin").resolve():
        pytest.skip("/usr/sbin is /usr/bin here, so no program can be hidden from the scripts")
    return make


def _setup(level: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    # Never the level "demo" or "test" with everything that is needed: that would create an environment here.
    return subprocess.run(
        ["/bin/sh", SETUP, level], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def _calls(tmp_path: Path) -> list[str]:
    calls = tmp_path / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


ROOT_ID = "echo 0"
USER_ID = "echo 1000"


@pytest.mark.needs_tools("make")
def test_make_without_a_target_lists_every_target_with_its_purpose() -> None:
    listed = run("make", "-C", ROOT, "--no-print-directory")
    assert re.findall(r"^  make ([a-z-]+) +\S", listed, re.MULTILINE) == list(TARGETS)
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert set(phony[1].split()) == set(TARGETS)


@pytest.mark.needs_tools("make")
@pytest.mark.parametrize("target", ["demo", "test"])
def test_setup_is_repeated_only_if_pyproject_or_the_environment_changes(target: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    setup = f".ci/setup {target}"
    assert setup in run("make", "-n", "-C", tmp_path, target)
    program = tmp_path / ".venv" / "bin" / "aligntool"
    program.parent.mkdir(parents=True)
    (tmp_path / ".venv" / f".ready-{target}").touch()
    in_order = f"#!/bin/sh\n# {tmp_path}/.venv/bin/python\n"
    program.write_text(in_order)
    program.chmod(0o755)
    assert setup not in run("make", "-n", "-C", tmp_path, target)
    program.write_text(f"#!{tmp_path}/.venv/bin/python\n")  # was moved, or is of a Python that was replaced
    assert setup in run("make", "-n", "-C", tmp_path, target)
    program.write_text("#!/bin/sh\n# /original/.venv/bin/python\n")  # was copied, and starts the original
    assert setup in run("make", "-n", "-C", tmp_path, target)
    shared = (tmp_path / ".venv").rename(tmp_path / "shared")
    (tmp_path / ".venv").symlink_to(shared)  # made by the user
    assert setup not in run("make", "-n", "-C", tmp_path, target)
    program.write_text(in_order)
    later = (tmp_path / "pyproject.toml").stat().st_mtime + 60
    os.utime(tmp_path / "pyproject.toml", (later, later))
    assert setup in run("make", "-n", "-C", tmp_path, target)


def test_without_apt_the_packages_are_listed_by_their_names_in_four_distributions(machine: Machine) -> None:
    done = _setup("build", machine(id=ROOT_ID))
    assert done.returncode == 1
    commands = dict(re.findall(r"^  (\w+)[^:]*: +(.*)$", done.stderr, re.MULTILINE))
    assert commands["Fedora"].startswith("dnf install ")
    assert {"parted-devel", "python3-devel", "gcc"} <= set(commands["Fedora"].split())
    assert commands["openSUSE"].startswith("zypper install ")
    assert {"parted-devel", "python3-devel"} <= set(commands["openSUSE"].split())
    assert commands["Arch"].startswith("pacman -S ")
    assert {"parted", "python", "pkgconf"} <= set(commands["Arch"].split())
    assert {"libparted-dev", "python3-venv"} <= set(commands["Debian"].split())
    assert "cannot go on without: " in done.stderr.splitlines()[-1]


def test_without_apt_setup_continues_if_everything_is_already_installed(machine: Machine, tmp_path: Path) -> None:
    environment = machine(id=USER_ID, pkg_config="exit 0", cc="exit 0")
    headers = tmp_path / "include"
    headers.mkdir()
    (headers / "Python.h").touch()
    python = tmp_path / "bin" / "python3"
    python.write_text(f'#!/bin/sh\ncase $2 in *sysconfig*) echo "{headers}" ;; esac\nexit 0\n')
    python.chmod(0o755)
    done = _setup("build", environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_root_and_sudo_the_command_to_type_is_printed(machine: Machine, tmp_path: Path) -> None:
    done = _setup("build", machine(id=USER_ID, apt_get="exit 1"))
    assert done.returncode == 1
    assert "only root can install them" in done.stderr
    typed = re.search(r"type this as root, then this command again:  apt-get install (.*)", done.stderr)
    assert typed
    assert "libparted-dev" in typed[1].split()
    assert [call for call in _calls(tmp_path) if call.startswith("apt-get")] == []


def test_with_sudo_only_missing_packages_are_installed(machine: Machine, tmp_path: Path) -> None:
    environment = machine(id=USER_ID, apt_get="exit 0", sudo='exec "$@"', cc="exit 0")
    done = _setup("build", environment)
    installs = [call.split() for call in _calls(tmp_path) if call.startswith("sudo")]
    assert len(installs) == 1
    assert installs[0][:4] == ["sudo", "env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
    assert {"install", "-y", "libparted-dev"} <= set(installs[0])
    assert "gcc" not in installs[0]  # there is a compiler
    assert "mtools" not in installs[0]  # not needed for this
    assert done.returncode == 1  # this apt-get reported success and installed nothing
    assert "cannot go on without: " in done.stderr


def test_the_package_lists_are_fetched_once_if_a_package_is_unknown_to_apt(machine: Machine, tmp_path: Path) -> None:
    known = f"{tmp_path}/known"
    apt = f'case "$*" in *update*) : > "{known}" ;; *) [ -e "{known}" ] ;; esac'
    _setup("build", machine(id=ROOT_ID, apt_get=apt))
    words = [re.findall(r"simulate|update|(?<=recommends )install", call) for call in _calls(tmp_path)]
    assert [each[0] for each in words if each] == ["simulate", "update", "install"]


def test_a_package_that_does_not_exist_for_this_processor_is_skipped(machine: Machine, tmp_path: Path) -> None:
    """Such as the boot loaders of a PC on ARM."""
    apt, lists = (
        'case "$*" in *simulate* | *mtools*) exit 100 ;; esac',
        "echo 'gcc | 12 | main'; echo 'gcc | 11 | main'",
    )
    done = _setup("demo", machine(id=ROOT_ID, apt_get=apt, apt_cache=lists))
    installs = [call.partition(" install ")[2] for call in _calls(tmp_path) if "simulate" not in call]
    assert list(filter(None, installs)) == ["gcc"]
    assert "cannot go on without: " in done.stderr


def test_if_apt_fails_setup_ends_with_the_command_to_type(machine: Machine) -> None:
    done = _setup("build", machine(id=ROOT_ID, apt_get='echo "E: no network" >&2; exit 100'))
    assert done.returncode == 1
    assert "apt-get could not install them: E: no network" in done.stderr
    assert re.search(r"Once that is fixed:  apt-get install .*libparted-dev", done.stderr.splitlines()[-1])


def test_a_python_that_is_too_old_is_not_used(machine: Machine) -> None:
    done = _setup("python", machine(python3="exit 1"))
    assert (done.returncode, done.stdout) == (0, "")


def test_every_program_that_a_test_requires_is_installed_by_make_test() -> None:
    brought = {name for row in _rows() for name in row[1].split(",")}
    assert len(brought) > 30
    needed: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "needs_tools" in text else ():  # a tree takes far longer
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("needs_tools"):
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
                needed |= {str(name): path.name for name in names}
    there_anyway = {"cc", "make", "python3", "tar"}
    assert {name: where for name, where in needed.items() if name not in brought | there_anyway} == {}


def test_every_row_names_a_package_for_each_of_the_four_distributions() -> None:
    assert {len(row) for row in _rows()} == {6}
    assert {row[0] for row in _rows()} == {"build", "demo", "test"}


def _rows() -> list[list[str]]:
    table = SETUP.read_text().split("<<'END'\n")[1].split("\nEND\n")[0]
    return [line.split() for line in table.splitlines()]


@pytest.mark.parametrize(
    ("start", "version_ok", "made"),
    [
        ("#!/bin/sh\n# {}/.venv/bin/python\n", True, False),
        ("#!{}/.venv/bin/no-such-python\n", True, True),
        ("#!/bin/sh\n# /original/.venv/bin/python\n", True, True),
        ("#!/bin/sh\n# {}/.venv/bin/python\n", False, True),
    ],
    ids=["in order", "moved", "copied", "too old"],
)
def test_an_environment_is_recreated_if_it_was_moved_or_has_another_python(
    start: str, version_ok: bool, made: bool, tmp_path: Path
) -> None:
    """The test makes everything: the checkout, the environment, and the Python that would create another one."""
    folder = tmp_path / "checkout"
    (folder / ".venv" / "bin").mkdir(parents=True)
    made_anew = f'#!/bin/sh\ncase "$*" in *venv*) echo made >"{tmp_path}/made" ;; esac\n'
    programs = {
        "checkout/.venv/bin/pip": start.format(folder),
        "checkout/.venv/bin/python": f'#!/bin/sh\ncase "$*" in *version_info*) exit {int(not version_ok)} ;; esac\n',
        "python": made_anew,
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    body = SETUP.read_text().partition("make_environment() {")[2].partition("\n}\n")[0]
    script = f"find_python() {{ echo {tmp_path}/python; }}; level=demo; {body}"
    run("sh", "-euc", f"cd {folder}; {script}")
    assert (tmp_path / "made").exists() is made


# .ci/run

CLOSING = "=== 1 failed, 12 passed, 3 skipped in 4.20s ==="


@pytest.mark.needs_tools("make")
@pytest.mark.parametrize(
    ("recipe", "status", "closing"),
    [("@exit 1", False, CLOSING), ("@true", True, "12 passed in 61.23s (0:01:01)")],
    ids=["failing", "passing"],
)
def test_ci_run_calls_make_test_and_ends_with_its_status_and_closing_line(
    recipe: str, status: bool, closing: str, tmp_path: Path
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text(f"test:\n\t@echo '{closing}'\n\t{recipe}\n")
    done = subprocess.run([tmp_path / ".ci" / "run"], cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == closing
    assert (done.returncode == 0) is status


# make install

# A Python whose environments contain the files of aligntool, so that nothing is downloaded. tests/test_packages.py
# tests what pip installs.
PYTHON = """#!/bin/sh
case $2 in *sysconfig*) dirname "$0" ;; esac
[ "$2" = venv ] || exit 0
home=$(realpath -ms "$4")
mkdir -p "$home/bin" "$home/lib" "$home/share/man/man1" "$home/share/fish/vendor_completions.d" "$home/share/other"
mkdir -p "$home/share/doc/aligntool/docs"
cd "$home/share"
touch man/man1/aligntool.1 fish/vendor_completions.d/aligntool.fish other/thing doc/aligntool/docs/raid.md
echo "#!$home/bin/python" > "$home/bin/aligntool"
echo "home = /usr/bin" > "$home/pyvenv.cfg"
printf '#!/bin/sh\nexit ${PIP_FAILS:-0}\n' > "$home/bin/python"
chmod 755 "$home/bin/aligntool" "$home/bin/python"
"""
LINKS = (
    "bin/aligntool",
    "share/man/man1/aligntool.1",
    "share/fish/vendor_completions.d/aligntool.fish",
    "lib/systemd/system/aligntool-audit.service",
    "lib/systemd/system/aligntool-audit.timer",
    "lib/systemd/system/aligntool-ensure@.service",
    "lib/systemd/catalog/aligntool.catalog",
    "share/doc/aligntool/docs/raid.md",
)


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a target of the Makefile with the Python above, and a sudo that can access only these folders."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text(PYTHON)
    (programs / "Python.h").touch()

    def make(*words: str, secure_path: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        line = f"Value to override user's \\$PATH with: {secure_path}" if secure_path else ""
        (programs / "sudo").write_text(f'#!/bin/sh\necho "{line}"\n')
        for name in ("python3", "sudo"):
            (programs / name).chmod(0o755)
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHON": str(programs / "python3")} | variables
        return subprocess.run(
            ["make", "-C", ROOT, "--no-print-directory", *words],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return make


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


Install = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.needs_tools("make")
@pytest.mark.parametrize("word", ["PREFIX", "prefix"])
def test_install_writes_below_the_prefix_and_uninstall_keeps_other_files(
    install: Install, word: str, tmp_path: Path
) -> None:
    prefix = tmp_path / "local"
    (prefix / "share" / "man").mkdir(parents=True)
    (prefix / "share" / "man" / "other.1").touch()
    before = _files(prefix)
    for end in ("/", ""):  # an upgrade is an install over an older one
        done = install("install", f"{word}={prefix}{end}")
        assert done.returncode == 0, done.stderr
    assert [(prefix / name).resolve().is_relative_to(prefix / "lib" / "aligntool") for name in LINKS] == [True] * len(
        LINKS
    )
    assert not (prefix / "share" / "other").exists()
    assert f"\nExecStart={prefix}/bin/aligntool audit " in (prefix / LINKS[3]).read_text()
    assert install("uninstall", f"{word}={prefix}").returncode == 0
    assert _files(prefix) == before


@pytest.mark.needs_tools("make")
@pytest.mark.parametrize("spelling", ["{}", "{}/", "{}/../stage", "relative"])
def test_install_with_destdir_stages_files_that_run_without_it(install: Install, spelling: str, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    named = os.path.relpath(stage, ROOT) if spelling == "relative" else spelling.format(stage)
    words = ("prefix=/usr/", f"DESTDIR={named}")
    assert install("install", *words, secure_path="/sbin:/bin").returncode == 0
    assert (stage / "usr/bin/aligntool").readlink() == Path("/usr/lib/aligntool/bin/aligntool")
    for path in (path for path in stage.rglob("*") if path.is_file() and not path.is_symlink()):
        assert str(stage) not in path.read_text(), path
    assert install("uninstall", *words).returncode == 0
    assert _files(stage) == []


@pytest.mark.needs_tools("make", "systemctl")
def test_the_timer_is_installed_and_not_enabled(install: Install, tmp_path: Path) -> None:
    assert install("install", "prefix=/usr", f"DESTDIR={tmp_path}", secure_path="/sbin:/bin").returncode == 0
    # The links point to the final place of the files; offline systemctl resolves them in its --root.
    systemctl = ("systemctl", f"--root={tmp_path}")
    assert run(*systemctl, "is-enabled", "aligntool-audit.timer", fails=True) == "disabled\n"
    run(*systemctl, "enable", "aligntool-audit.timer")
    assert (tmp_path / "etc/systemd/system/timers.target.wants/aligntool-audit.timer").is_symlink()


@pytest.mark.needs_tools("make")
def test_a_link_is_made_in_the_secure_path_of_sudo_if_it_lacks_the_prefix(install: Install, tmp_path: Path) -> None:
    prefix, system = tmp_path / "local", tmp_path / "sbin"
    system.mkdir()
    done = install("install", f"PREFIX={prefix}", secure_path=f"{system}:/nowhere")
    assert f"install: {system}/aligntool -> " in done.stdout
    assert (system / "aligntool").readlink() == prefix / "lib/aligntool/bin/aligntool"
    install("uninstall", f"PREFIX={prefix}")
    assert _files(system) == []
    done = install("install", f"PREFIX={prefix}", secure_path=f"{system}:{prefix}/bin")
    assert (done.returncode, _files(system)) == (0, [])


@pytest.mark.needs_tools("make")
def test_an_existing_program_in_the_secure_path_of_sudo_is_kept_and_reported(install: Install, tmp_path: Path) -> None:
    prefix, system = tmp_path / "local", tmp_path / "sbin"
    system.mkdir()
    (system / "aligntool").write_text("another one")
    done = install("install", f"PREFIX={prefix}", secure_path=str(system))
    assert done.returncode == 0
    assert f"{system}/aligntool exists; `sudo aligntool` starts that one" in done.stderr
    install("uninstall", f"PREFIX={prefix}")
    assert (system / "aligntool").read_text() == "another one"


@pytest.mark.needs_tools("make")
def test_an_install_that_pip_cannot_finish_leaves_no_files(install: Install, tmp_path: Path) -> None:
    done = install("install", f"PREFIX={tmp_path}/local", PIP_FAILS="1")
    assert done.returncode != 0
    assert "pip could not install it" in done.stderr
    assert not (tmp_path / "local").exists()


@pytest.mark.needs_tools("make")
def test_a_folder_of_another_program_is_neither_replaced_nor_deleted(install: Install, tmp_path: Path) -> None:
    home = tmp_path / "lib" / "aligntool"
    home.mkdir(parents=True)
    (home / "thesis").write_text("ten years")
    for word in ("install", "uninstall"):
        done = install(word, f"PREFIX={tmp_path}")
        assert done.returncode != 0
        assert f"{home} exists and is not an aligntool; nothing was changed" in done.stderr
    assert (home / "thesis").read_text() == "ten years"


@pytest.mark.needs_tools("make")
def test_an_existing_command_of_that_name_is_kept(install: Install, tmp_path: Path) -> None:
    install("install", f"PREFIX={tmp_path}")
    (tmp_path / "bin" / "aligntool").unlink()
    (tmp_path / "bin" / "aligntool").write_text("another one")
    for word in ("install", "uninstall"):
        assert install(word, f"PREFIX={tmp_path}").returncode != 0
    assert (tmp_path / "bin" / "aligntool").read_text() == "another one"
    assert (tmp_path / "lib" / "aligntool").exists()


@pytest.mark.needs_tools("make")
def test_a_prefix_that_depends_on_the_folder_is_refused(install: Install) -> None:
    assert "here is not an absolute path; nothing was changed" in install("install", "PREFIX=here").stderr


@pytest.mark.needs_tools("shellcheck")
def test_the_shell_scripts_pass_shellcheck() -> None:
    scripts = sorted(path for path in (ROOT / ".ci").iterdir() if path.is_file() and not path.suffix)
    names = ["catalogues", "dist", "install", "package", "run", "setup", "test-packages"]
    assert [path.name for path in scripts] == names
    run("shellcheck", *scripts, ROOT / ".ci" / "test-package.sh")
    assert all(os.access(path, os.X_OK) for path in scripts)
