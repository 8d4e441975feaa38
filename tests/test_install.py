"""The wheel, as somebody installs it who never saw the checkout."""

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from aligntool import __version__

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _python(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    wheels = list(folder.glob("*.whl"))
    assert len(wheels) == 1
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs' folder of a fresh environment with the wheel in it. What aligntool depends on is lent by the
    environment of the tests, so no network is needed; this checkout is not lent."""
    home = tmp_path_factory.mktemp("home")
    venv.create(home, with_pip=False, symlinks=True)
    library = next(home.glob("lib*/python*/site-packages"))
    _python(sys.executable, "-m", "pip", f"--python={home}/bin/python", "install", "--quiet", "--no-deps",
            "--no-index", "--disable-pip-version-check", str(wheel))  # fmt: skip
    # A path in PYTHONPATH or a .pth file would bring the editable checkout along; links to the packages do not.
    for package in Path(sysconfig.get_path("platlib")).iterdir():
        if not package.name.lower().startswith(("aligntool", "_aligntool", "__editable__", "pip")):
            place = library / package.name
            if not place.exists():
                place.symlink_to(package)
    return home / "bin"


def _python(*words: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_wheel_holds_the_program_the_recipes_and_the_licence_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    recipes = {f"aligntool/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "recipes").rglob("*.toml")}
    assert len(recipes) >= 4
    assert recipes <= names
    assert {"aligntool/py.typed", "aligntool/audit/findings.md", "aligntool/raid/system_files/esp-copies.sh"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} <= {"aligntool", f"{wheel.name.split('-py3')[0]}.dist-info"}
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aligntool").rglob("*.py")}
    assert modules <= names


def test_the_installed_program_is_not_the_checkout_and_says_its_version(installed: Path, tmp_path: Path) -> None:
    place = _python(installed / "python", "-c", "import aligntool; print(aligntool.__file__)", cwd=tmp_path)
    assert place.strip().startswith(str(installed.parent))
    told = _python(installed / "aligntool", "--version", cwd=tmp_path)
    assert told.strip() == f"aligntool {__version__}"


def test_the_installed_program_finds_its_drive_database_from_any_folder(installed: Path, tmp_path: Path) -> None:
    told = _python(installed / "aligntool", "drives", "WDC WD20EARS-00MVWB0", cwd=tmp_path)
    assert "WD20EARS" in told
    assert "4096" in told or "4KiB" in told


def test_the_installed_program_writes_a_page(installed: Path, tmp_path: Path) -> None:
    image, page = tmp_path / "disk.img", tmp_path / "report.html"
    image.write_bytes(bytes(1 << 20))
    _python(installed / "aligntool", "report", image, "-o", page, cwd=tmp_path)
    assert "<style>" in page.read_text() and str(image) in page.read_text()
