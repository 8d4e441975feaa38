"""The wheel and the single file, installed and run without a checkout."""

import ast
import email
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from aligntool import __version__
from aligntool.commands import PAGE
from tests.conftest import run
from tests.thorough import when_thorough

ROOT = Path(__file__).parent.parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _python(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    wheels = list(folder.glob("*.whl"))
    assert len(wheels) == 1
    return wheels[0]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program folder of a fresh environment with the wheel in it. The dependencies of aligntool come from
    the environment of the tests, so no network is needed; this checkout does not.
    """
    home = tmp_path_factory.mktemp("home")
    venv.create(home, with_pip=False, symlinks=True)
    library = next(home.glob("lib*/python*/site-packages"))
    _python(sys.executable, "-m", "pip", f"--python={home}/bin/python", "install", "--quiet", "--no-deps",
            "--no-index", "--disable-pip-version-check", str(wheel))  # fmt: skip
    # A path in PYTHONPATH or a .pth file would include the editable checkout; links to the packages do not.
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


def _pages_in_messages() -> Iterator[str]:
    """Yield the pages that strings of the program name, except docstrings, and those that explanations name."""
    page = r"\bdocs/[\w-]+\.md"
    yield from re.findall(page, (ROOT / "aligntool" / "audit" / "findings.md").read_text())
    for path in (ROOT / "aligntool").rglob("*.py"):
        tree = ast.parse(path.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield from re.findall(page, node.value)


def test_the_wheel_contains_the_program_recipes_and_licence_but_no_tests(wheel: Path) -> None:
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
    named = {f"doc/aligntool/{name}" for name in _pages_in_messages()}
    named.add(f"doc/aligntool/{PAGE}")
    assert "doc/aligntool/docs/layers.md" in named
    assert shared == manual | completion | named
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aligntool").rglob("*.py")}
    schemas = {path.relative_to(ROOT).as_posix() for path in (ROOT / "aligntool" / "schemas").glob("*.json")}
    assert modules | schemas <= names and len(schemas) > 10


def test_the_installed_program_is_not_the_checkout_and_prints_its_version(installed: Path, tmp_path: Path) -> None:
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


def _alone(
    pyz: Path, *words: str | Path, python: Sequence[str] = (sys.executable,), **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [*_alone_words(pyz, python, **environment), *words]
    return subprocess.run(command, cwd=pyz.parent, capture_output=True, text=True, check=False, timeout=300)


def _alone_words(pyz: Path, python: Sequence[str], **environment: str) -> list[str]:
    """Return the command that starts the file with an empty environment, without the libraries of this one (-I -S: only
    Python's own) and, if root may do that, without a network.
    """
    alone = ("unshare", "--net") if os.geteuid() == 0 else ()
    given = [f"{name}={value}" for name, value in (environment | {"PATH": os.environ["PATH"]}).items()]
    return [*alone, "env", "-i", *given, python[0], "-I", "-S", *python[1:], str(pyz)]


@when_thorough("a demo on every Python")
def test_one_file_realigns_its_demo_disk_without_installed_libraries(pyz: Path) -> None:
    image = pyz.parent / "demo.img"
    assert _alone(pyz, "demo", image).returncode == 0
    assert _alone(pyz, "audit", image).returncode == 1
    done = _alone(pyz, "realign", image, "--yes")
    assert done.returncode == 0, done.stderr
    assert _alone(pyz, "audit", image).returncode == 0
    assert all(start % 8 == 0 for start in _starts(image))


def _starts(image: Path) -> list[int]:
    """Return the first sectors of the partitions of the demo's disk, by sfdisk."""
    parts = json.loads(run("sfdisk", "--json", image))["partitiontable"]["partitions"]
    starts = [part["start"] for part in parts if part["type"] != "5"]
    assert len(starts) == 4
    return starts


@when_thorough("a report on every Python")
def test_one_file_has_the_recipes_and_the_templates(pyz: Path) -> None:
    assert "WD20EARS" in _alone(pyz, "drives", "WDC WD20EARS-00MVWB0").stdout
    assert _alone(pyz, "explain", "AT101").returncode == 0
    assert json.loads(_alone(pyz, "schema", "plan").stdout)["$id"] == "urn:aligntool:plan:1"
    assert _alone(pyz, "recipes", "list").returncode == 0
    image = pyz.parent / "empty.img"
    image.write_bytes(bytes(1 << 20))
    assert _alone(pyz, "report", image, "-o", "page.html").returncode == 0
    assert "<style>" in (pyz.parent / "page.html").read_text()


def test_one_file_has_the_pages_that_messages_name(pyz: Path) -> None:
    named = set(_pages_in_messages())
    named.add(PAGE)
    with zipfile.ZipFile(pyz) as archive:
        assert "docs/layers.md" in named <= set(archive.namelist())


def test_one_file_refuses_a_new_table_and_names_the_missing_package(pyz: Path) -> None:
    image = pyz.parent / "new.img"
    with image.open("wb") as file:
        file.truncate(64 << 20)
    before = image.read_bytes()
    done = _alone(pyz, "layout", image, "--part", "rest:linux", "--yes")
    assert done.returncode == 3, done.stderr
    assert "python3-parted" in done.stderr
    assert "Traceback" not in done.stderr
    assert image.read_bytes() == before


# Warnings are errors: a deprecation in a new Python is fixed before the removal. `-X dev` shows all of them.
STRICT = ("-X", "dev", "-W", "error")
IMPORT_ALL = """
import importlib, sys, zipfile
sys.path.insert(0, sys.argv[1])
names = [name for name in zipfile.ZipFile(sys.argv[1]).namelist() if name.startswith("aligntool/")]
for name in names:
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    if name.endswith(".py") and module != "aligntool.cli.screens":  # textual is not in the file
        importlib.import_module(module)
        print(module)
"""


@cache
def _pythons() -> dict[str, str]:
    """Return every Python here by its version: those in ALIGNTOOL_PYTHONS, the one of the tests, PATH's, pyenv's."""
    ask = ("-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    named = [path for path in os.environ.get("ALIGNTOOL_PYTHONS", "").split(os.pathsep) if path]
    found = {run(path, *ask).strip(): path for path in (sys.executable, *named)}
    folders = [*map(Path, os.get_exec_path()), *Path.home().glob(".pyenv/versions/*/bin")]
    for version in SUPPORTED:
        for path in (folder / f"python{version}" for folder in folders):
            # pyenv has shims for versions that are not installed.
            if version not in found and os.access(path, os.X_OK) and run(path, *ask, fails=True).strip() == version:
                found[version] = str(path)
    return found


RUNNING = "{}.{}".format(*sys.version_info)
LONG = when_thorough("loads every module by another Python")


@pytest.fixture(params=[pytest.param(one, marks=() if one == RUNNING else LONG) for one in SUPPORTED])
def python(request: pytest.FixtureRequest) -> str:
    version = str(request.param)
    if version not in _pythons():
        pytest.skip(f"no python{version} on PATH, in ~/.pyenv or in ALIGNTOOL_PYTHONS (docs/contributing.md)")
    return _pythons()[version]


def test_every_supported_python_is_named_by_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert tuple(named) == SUPPORTED and project["requires-python"] == f">={SUPPORTED[0]}"


def test_one_file_starts_and_all_its_modules_load_without_a_warning(pyz: Path, python: str) -> None:
    assert _alone(pyz, "--version", python=(python, *STRICT)).stdout == f"aligntool {__version__}\n"
    loaded = _python(python, "-I", "-S", *STRICT, "-c", IMPORT_ALL, pyz).split()
    assert {"aligntool.cli.app", "aligntool.mover.move", "aligntool.raid.planning"} < set(loaded)


@when_thorough("moves the disk of the demo by each Python")
def test_one_file_works_with_every_supported_python(pyz: Path, python: str, tmp_path: Path) -> None:
    strict, image, page = (python, *STRICT), tmp_path / "old.img", tmp_path / "page.html"

    def works(*words: str | Path, code: int = 0) -> str:
        done = _alone(pyz, *words, python=strict)
        assert done.returncode == code, done.stdout + done.stderr
        assert not re.search("Warning|Exception ignored|Traceback", done.stderr), done.stderr
        return done.stdout

    works("demo")
    works("demo", image)
    works("audit", image, code=1)
    assert "realign" in works("plan", "realign", image)
    works("realign", image, "--yes")
    assert all(start % 8 == 0 for start in _starts(image))
    works("report", image, "-o", page)
    assert "<style>" in page.read_text()
    completion = works("--show-completion", "bash")
    assert run("bash", "-c", f"{completion}\ncomplete -p aligntool").split()[-1] == "aligntool"


@when_thorough("starts at a terminal by each Python")
@pytest.mark.needs_tools("script")
def test_one_file_names_the_missing_library_for_the_tui(pyz: Path, python: str) -> None:
    command = shlex.join((*_alone_words(pyz, (python, *STRICT)), "tui"))
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3 and "python3-textual" in done.stdout and "Traceback" not in done.stdout


def test_two_checkouts_build_the_same_file(pyz: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for name in ("aligntool", "recipes", "docs", ".ci"):
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
