"""The descriptions of packages for distributions; `make test-packages` builds, installs and tries the packages."""

import re
import tomllib
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from aligntool import __version__
from tests.conftest import run

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
UNRELEASED = "+dev"
NEEDED = [
    re.split(r"[<>=]", line)[0]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]


def _text(name: str) -> str:
    return (PACKAGING / name).read_text()


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("debian/changelog", r"^aligntool \(([^)]+)\)"),
        ("packaging/aligntool.spec", r"^Version: +(\S+)$"),
        ("packaging/PKGBUILD", r"^pkgver=(\S+)$"),
        ("packaging/ansible/galaxy.yml", r"^version: (\S+)$"),
        ("docs/install.md", r"sudo apt install ./dist/aligntool_(.+)_all.deb$"),
        ("docs/install.md", r"sudo dnf install ./dist/aligntool-(.+)-1.noarch.rpm$"),
        ("docs/install.md", r"sudo zypper install .* ./dist/aligntool-(.+)-1.noarch.rpm$"),
    ],
)
def test_every_package_has_the_version_of_the_program(file: str, pattern: str) -> None:
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)[0] == __version__


def test_a_tree_that_differs_from_a_release_does_not_have_its_version() -> None:
    """Owners compare it with the versions that the changelog states as affected. X+dev is later than X for PEP 440,
    dpkg, rpm and pacman, and earlier than the next release.
    """
    changed = (*(ROOT / "changelog.d").glob("*.md"), *re.findall(r"^## \[Unreleased\]$", CHANGELOG, re.MULTILINE))
    assert __version__.endswith(UNRELEASED) is bool(changed)


def test_every_package_has_the_date_of_the_release() -> None:
    """The heading of a version as in Keep a Changelog; debian/changelog and the .rpm's also have days of the week."""
    released = re.findall(r"^## \[(\S+)\] - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)
    version, day = released[0]
    assert version == __version__.removesuffix(UNRELEASED)
    debian = re.findall(r"^ -- .*>  (.+)$", (ROOT / "debian/changelog").read_text(), re.MULTILINE)[0]
    assert parsedate_to_datetime(debian) == datetime.fromisoformat(f"{day}T00:00:00+00:00")
    assert debian.startswith(f"{datetime.fromisoformat(day):%a}, ")
    rpm = re.findall(r"^%changelog\n\* (\w+ \w+ \d+ \d+) .* - (\S+)-1$", _text("aligntool.spec"), re.MULTILINE)
    assert rpm == [(f"{datetime.fromisoformat(day):%a %b %d %Y}", __version__)]


# A reserved placeholder domain (RFC 2606), which a release replaces; texts of licences and formats.
ADDRESSES = {"aligntool@example.org", "https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"}
LICENCE = re.compile(r"https://www\.gnu\.org/licenses/\S+")


def test_no_package_contains_an_invented_address_of_the_project() -> None:
    assert "urls" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = ("pyproject.toml", "debian/*", "packaging/PKGBUILD", "packaging/*.spec", "packaging/ansible/**/*.*")
    found = {
        address
        for pattern in metadata
        for path in ROOT.glob(pattern)
        if path.is_file() and path.suffix != ".pyc"
        for address in re.findall(r"https?://[^\s)>]+|[\w.+-]+@[\w-]+\.\w+|\(@\w+\)", path.read_text())
    }
    assert {address for address in found if not LICENCE.fullmatch(address)} == ADDRESSES


def test_every_package_requires_or_contains_the_libraries_of_pyproject() -> None:
    brought = set(re.findall(r"^([\w-]+)==", (ROOT / ".ci" / "vendored.txt").read_text(), re.MULTILINE))
    assert len(NEEDED) >= 5
    debian = {"pyparted": "python3-parted"}
    arch = {"jinja2": "python-jinja"}
    for name in NEEDED:
        assert name in brought or debian.get(name, f"python3-{name}") in (ROOT / "debian" / "control").read_text()
        assert name in brought or f"python3dist({name})" in _text("aligntool.spec")
        assert arch.get(name, f"python-{name}") in _text("PKGBUILD")


def test_what_a_release_is_made_with_is_pinned_by_digests() -> None:
    text = (ROOT / ".ci/constraints.txt").read_text()
    lines = [line for line in text.replace("\\\n", "").splitlines() if line[:1] not in "#-"]
    pinned = {line.partition("==")[0].lower() for line in lines}
    assert pinned >= {*NEEDED, "build", "hatchling", "packaging", "pathspec", "pluggy"} - {"pyparted"}
    assert all(re.fullmatch(r"[\w-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    assert "--only-binary :all:" in text and "https:" not in text
    installs = [line for line in (ROOT / ".ci/dist").read_text().splitlines() if "pip install" in line]
    assert all("--require-hashes" in line or '--no-deps "$work"' in line for line in installs) and len(installs) == 2


def test_the_pkgbuild_is_a_valid_bash_script() -> None:
    run("bash", "-n", PACKAGING / "PKGBUILD")


def test_every_package_contains_the_pages_named_in_messages() -> None:
    sources = (ROOT / "aligntool").rglob("*.py")
    named = {name for path in sources for name in re.findall(r'"[^"\n]*\bdocs/([\w-]+\.md)', path.read_text())}
    assert len(named) >= 3 and named <= {path.name for path in (ROOT / "docs").glob("*.md")}
    assert "docs/*.md usr/share/doc/aligntool/docs\n" in (ROOT / "debian" / "aligntool.install").read_text()
    assert re.search(r"^%doc .*\bdocs\b", _text("aligntool.spec"), re.MULTILINE)
    assert "docs/*.md -t" in _text("PKGBUILD")
    assert 'docs/*.md "$tree/docs"' in (ROOT / ".ci" / "package").read_text()
