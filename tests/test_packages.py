"""The descriptions of packages for distributions; `make test-packages` builds, installs and tries the packages."""

import re
import tomllib
from pathlib import Path

import pytest

from aligntool import __version__
from tests.conftest import run

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
NEEDED = [
    re.split(r"[<>=]", line)[0]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("debian/changelog", r"^aligntool \(([^)]+)\)"),
        ("packaging/aligntool.spec", r"^Version: +(\S+)$"),
        ("packaging/PKGBUILD", r"^pkgver=(\S+)$"),
    ],
)
def test_every_package_has_the_version_of_the_program(file: str, pattern: str) -> None:
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)[0] == __version__


def test_every_package_needs_the_libraries_of_pyproject_or_brings_them() -> None:
    brought = set(re.findall(r"^([\w-]+)==", (ROOT / ".ci" / "vendored.txt").read_text(), re.MULTILINE))
    assert len(NEEDED) >= 5
    debian = {"pyparted": "python3-parted"}
    arch = {"jinja2": "python-jinja"}
    for name in NEEDED:
        assert name in brought or debian.get(name, f"python3-{name}") in (ROOT / "debian" / "control").read_text()
        assert name in brought or f"python3dist({name})" in (PACKAGING / "aligntool.spec").read_text()
        assert arch.get(name, f"python-{name}") in (PACKAGING / "PKGBUILD").read_text()


def test_the_pkgbuild_is_a_script_of_bash() -> None:
    run("bash", "-n", PACKAGING / "PKGBUILD")
