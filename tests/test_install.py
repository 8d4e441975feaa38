"""The wheel and the one file, as they are installed and run where there is no checkout."""

import email
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from aligntool import __version__
from tests.conftest import run

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
    base = wheel.name.split("-py3")[0]
    assert {name.split("/")[0] for name in names} <= {"aligntool", f"{base}.dist-info", f"{base}.data"}
    shared = {name.removeprefix(f"{base}.data/data/share/") for name in names if ".data/" in name}
    manual = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs" / "man").rglob("*.[15]")}
    completion = {
        "bash-completion/completions/aligntool",
        "zsh/site-functions/_aligntool",
        "fish/vendor_completions.d/aligntool.fish",
    }
    assert shared == manual | completion
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aligntool").rglob("*.py")}
    schemas = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aligntool" / "schemas").glob("*.json")}
    assert modules | schemas <= names and len(schemas) > 10


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


# aligntool.pyz: the whole program in one file, for a rescue system without a network.


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pyz")
    _python(sys.executable, ROOT / ".ci" / "pyz.py", folder)
    return folder / "aligntool.pyz"


def _alone(pyz: Path, *words: str | Path, python: str | Path = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run the file with an empty environment, and none of the libraries of this one (-I -S: Python's own only)."""
    command = ["env", "-i", f"PATH={os.environ['PATH']}", python, "-I", "-S", pyz, *words]
    return subprocess.run(command, cwd=pyz.parent, capture_output=True, text=True, check=False, timeout=300)


def test_one_file_realigns_the_disk_of_its_demo_with_nothing_installed(pyz: Path) -> None:
    image = pyz.parent / "demo.img"
    assert _alone(pyz, "demo", image).returncode == 0
    assert _alone(pyz, "audit", image).returncode == 1
    done = _alone(pyz, "realign", image, "--yes")
    assert done.returncode == 0, done.stderr
    assert _alone(pyz, "audit", image).returncode == 0
    parts = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"]
    starts = [part["start"] for part in parts if part["type"] != "5"]
    assert len(starts) == 4
    assert all(start % 8 == 0 for start in starts)


def test_one_file_has_the_recipes_and_the_templates(pyz: Path) -> None:
    assert "WD20EARS" in _alone(pyz, "drives", "WDC WD20EARS-00MVWB0").stdout
    assert _alone(pyz, "explain", "AT101").returncode == 0
    assert json.loads(_alone(pyz, "schema", "plan").stdout)["$id"] == "urn:aligntool:plan:1"
    assert _alone(pyz, "recipes", "list").returncode == 0
    image = pyz.parent / "empty.img"
    image.write_bytes(bytes(1 << 20))
    assert _alone(pyz, "report", image, "-o", "page.html").returncode == 0
    assert "<style>" in (pyz.parent / "page.html").read_text()


def test_one_file_refuses_a_new_table_by_the_name_of_the_package_that_is_missing(pyz: Path) -> None:
    image = pyz.parent / "new.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    before = image.read_bytes()
    done = _alone(pyz, "layout", image, "--part", "rest:linux", "--yes")
    assert done.returncode == 3, done.stderr
    assert "python3-parted" in done.stderr
    assert "Traceback" not in done.stderr
    assert image.read_bytes() == before


def test_one_file_runs_on_every_python_that_is_here(pyz: Path) -> None:
    versions = ("3.11", "3.12", "3.13", "3.14")
    found = [path for path in map(shutil.which, (f"python{version}" for version in versions)) if path]
    ran = [
        python
        for python in found
        if subprocess.run([python, "-c", ""], check=False, capture_output=True).returncode == 0
    ]
    assert sys.version_info[:2] >= (3, 11)
    for python in (sys.executable, *ran):
        assert _alone(pyz, "--version", python=python).stdout == f"aligntool {__version__}\n", python


def test_two_checkouts_make_the_same_file(pyz: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("aligntool", "recipes", ".ci"):
        shutil.copytree(
            ROOT / name, other / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
        )
    shutil.copyfile(ROOT / "LICENSE", other / "LICENSE")
    _python(sys.executable, other / ".ci" / "pyz.py", tmp_path)
    for name in ("aligntool.pyz", "aligntool.cdx.json"):
        assert (tmp_path / name).read_bytes() == (pyz.parent / name).read_bytes()


def test_the_bill_of_materials_names_every_library_in_the_file(pyz: Path) -> None:
    document = json.loads((pyz.parent / "aligntool.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.5")
    metadata = {
        email.message_from_string(archive.read(name).decode())["Name"]
        for archive in [zipfile.ZipFile(pyz)]
        for name in archive.namelist()
        if name.endswith(".dist-info/METADATA")
    }
    assert metadata == {each["name"] for each in document["components"]} >= {"typer", "rich", "Jinja2", "pyudev"}
    refs = {each["bom-ref"] for each in document["components"]}
    assert all(set(each["dependsOn"]) <= refs for each in document["dependencies"])
