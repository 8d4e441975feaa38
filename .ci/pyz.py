"""Write aligntool.pyz and its bill of materials: python .ci/pyz.py FOLDER

One file with aligntool and the pure Python libraries that it needs, taken from the environment of the Python
that runs this. `python3 aligntool.pyz` needs nothing but Python. pyparted is a C library and stays outside:
the commands that make new partition tables refuse without it. The same versions make the same bytes: names
are sorted, and time stamps and permissions are fixed.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {"pyparted"}
EARLIEST = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip file
MAIN = b"from aligntool.__main__ import main\n\nmain()\n"
LICENCE_NAMES = re.compile(r"(licen[cs]e|copying|authors)", re.IGNORECASE)


def libraries() -> list[Distribution]:
    """Return the libraries that aligntool requires, directly or indirectly, sorted by name."""
    found: dict[str, Distribution] = {}
    names = _required(distribution("aligntool"))
    while names:
        name = names.pop()
        if name not in found and name not in OUTSIDE:
            found[name] = distribution(name)
            names += _required(found[name])
    return [found[name] for name in sorted(found)]


def _required(library: Distribution) -> list[str]:
    """Return the names of unconditional requirements: all conditions of the libraries here are for extras,
    for Windows, or for a Python older than 3.11.
    """
    return [_normal(re.split(r"[^\w.-]", line)[0]) for line in library.requires or () if ";" not in line]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def files_of(library: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the modules, data and licence texts of a library. Compiled modules have a pure twin beside
    them.
    """
    for file in library.files or ():
        path = PurePosixPath(file)
        metadata = path.parts[0].endswith(".dist-info")
        wanted = LICENCE_NAMES.search(path.name) or path.name == "METADATA" if metadata else _is_source(path)
        if wanted:
            yield str(path), Path(str(file.locate())).read_bytes()


def _is_source(path: PurePosixPath) -> bool:
    return (
        ".." not in path.parts
        and "__pycache__" not in path.parts
        and path.suffix not in (".so", ".pyi", ".c")
    )


def own_files() -> Iterator[tuple[str, bytes]]:
    """Yield the program, its recipes and its licence, as the wheel has them, and the pages that messages
    name.
    """
    for folder, inside in ((ROOT / "aligntool", "aligntool"), (ROOT / "recipes", "aligntool/recipes")):
        for path in folder.rglob("*"):
            if path.is_file() and _is_source(PurePosixPath(path)):
                yield f"{inside}/{path.relative_to(folder).as_posix()}", path.read_bytes()
    yield "LICENSE", (ROOT / "LICENSE").read_bytes()
    yield from ((f"docs/{page.name}", page.read_bytes()) for page in (ROOT / "docs").glob("*.md"))


def write_pyz(target: Path, libraries: list[Distribution]) -> None:
    """Write the program: a zip file that Python runs."""
    content = dict(own_files()) | {"__main__.py": MAIN}
    for library in libraries:
        content |= dict(files_of(library))
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(content):
                entry = zipfile.ZipInfo(name, EARLIEST)
                entry.external_attr = 0o644 << 16
                entry.create_system = 3  # Unix, wherever it is made
                archive.writestr(entry, content[name], zipfile.ZIP_DEFLATED, 9)
    target.chmod(0o755)


def write_sbom(target: Path, libraries: list[Distribution]) -> None:
    """Write the bill of materials, in CycloneDX 1.5: https://cyclonedx.org/docs/1.5/json/"""
    aligntool = distribution("aligntool")
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": _component(aligntool, "application")},
        "components": [_component(library, "library") for library in libraries],
        "dependencies": [
            {
                "ref": _purl(each),
                "dependsOn": sorted(
                    _purl(distribution(name)) for name in _required(each) if name not in OUTSIDE
                ),
            }
            for each in (aligntool, *libraries)
        ],
    }
    target.write_text(json.dumps(document, indent=2) + "\n")


def _component(library: Distribution, kind: str) -> dict[str, object]:
    found: dict[str, object] = {
        "type": kind,
        "bom-ref": _purl(library),
        "name": library.metadata["Name"],
        "version": library.version,
        "purl": _purl(library),
    }
    licence = next(
        (library.metadata[key] for key in ("License-Expression", "License") if key in library.metadata), ""
    )
    if licence and "\n" not in licence:
        found["licenses"] = [{"license": {"name": licence}}]
    return found


def _purl(library: Distribution) -> str:
    return f"pkg:pypi/{_normal(library.metadata['Name'])}@{library.version}"


def main() -> None:
    """Write both files into the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    found = libraries()
    write_pyz(folder / "aligntool.pyz", found)
    write_sbom(folder / "aligntool.cdx.json", found)


main()
