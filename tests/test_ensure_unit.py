"""The unit of `raid ensure`: systemd accepts it, it is ordered before the file systems, and hides no mount."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aligntool.cli.ensure import FOLDER, in_the_file
from aligntool.raid.refusals import MAY_BE_LOST
from tests.run_aligntool import run_aligntool

UNIT = Path(__file__).parent.parent / "packaging/systemd/aligntool-ensure@.service"
# systemd.exec(5): each gives the service a mount namespace, in which what it mounts stays.
HIDES_MOUNTS = re.compile(
    r"(Protect(System|Home|Kernel\w+|ControlGroups|Clock|Hostname|Proc)|Private\w+|ReadWritePaths|ReadOnlyPaths"
    r"|InaccessiblePaths|ExecPaths|NoExecPaths|TemporaryFileSystem|Bind\w*Paths|MountFlags|RootDirectory|RootImage"
    r"|DynamicUser|\w+Directory|ProcSubset|MountAPIVFS)$"
)


@pytest.mark.parametrize("hint", [MAY_BE_LOST, "--wipe sda overwrites all of it\n--wipe sdb overwrites all of it"])
def test_a_hint_names_the_keys_of_the_file_and_no_option_that_ensure_lacks(hint: str) -> None:
    found = in_the_file(f"sudo aligntool audit /dev/sda\n{hint}").splitlines()
    assert found[0] == "sudo aligntool audit /dev/sda" and len(found) == 2
    assert 'wipe = "foreign"' in found[1] and "--wipe" not in found[1]


def test_a_hint_for_another_mount_point_names_the_key_of_the_file() -> None:
    assert in_the_file("--mount /srv/data-2") == 'mount_at = "/srv/data-2", in the file'
    assert in_the_file("omit --mount") == "omit --mount"


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).extend(value.split())
    return found


@pytest.mark.needs_tools("systemd-analyze")
def test_systemd_verifies_the_unit_without_a_warning(tmp_path: Path) -> None:
    """With an installed program at the expected path; verify writes its warnings to standard error."""
    text = UNIT.read_text().replace("/usr/bin/aligntool", str(Path(sys.executable).with_name("aligntool")))
    (tmp_path / UNIT.name).write_text(text)
    words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / UNIT.name.replace("@", "@data"))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    own = [line for line in (done.stdout + done.stderr).splitlines() if "aligntool" in line]
    assert (done.returncode, own) == (0, [])


def test_a_failure_does_not_stop_the_boot_and_every_mount_is_seen() -> None:
    found = settings()
    assert {"local-fs.target", "shutdown.target"} <= set(found["Before"])
    assert found["DefaultDependencies"] == ["no"]  # otherwise it would be after local-fs.target: a circle
    assert found["WantedBy"] == ["local-fs.target"] and "RequiredBy" not in found
    assert [name for name in found if HIDES_MOUNTS.match(name)] == []
    assert found["NoNewPrivileges"] == ["yes"] and "CAP_SYS_ADMIN" in found["CapabilityBoundingSet"]


def test_its_command_is_valid_and_reads_the_file_that_the_unit_waits_for() -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    path, *words = shlex.split(line.replace("%i", "absent"))
    assert path == "/usr/bin/aligntool"
    done = run_aligntool(*words)
    assert done.returncode == 3 and f"{FOLDER}/absent.toml" in done.stderr
    assert settings()["ConditionPathExists"] == [f"{FOLDER}/%i.toml"]


def test_the_manual_pages_that_the_units_name_exist() -> None:
    """systemd.unit(5): Documentation=."""
    pages = Path(__file__).parent.parent / "docs/man"
    named = [
        word.removeprefix("man:").removesuffix(")").split("(")
        for unit in UNIT.parent.iterdir()
        for line in unit.read_text().splitlines()
        for word in line.removeprefix("Documentation=").split()
        if line.startswith("Documentation=") and word.startswith("man:")
    ]
    assert named and all((pages / f"man{section}" / f"{name}.{section}").exists() for name, section in named)
