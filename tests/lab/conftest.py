"""The fixtures `lab` and `debian` make PCs, each in a folder of its own that is removed at the end of the session."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import cannot_run
from tests.lab import debian as system_disk
from tests.lab import debian_tool, odd_disks
from tests.lab.debian_pc import DebianPC
from tests.lab.drives import Drive
from tests.lab.guest import LIMIT_S, Guest, kvm_works
from tests.lab.kernel import ROOT
from tests.lab.odd_disks import DRIVES
from tests.thorough import THOROUGH

REFERENCE_LIMIT_S = 3600.0  # minutes on a quiet machine, much longer on a busy one


@dataclass(frozen=True, slots=True)
class Lab:
    """A factory of guests."""

    folders: pytest.TempPathFactory

    def guest(self, *drives: Drive, memory_mib: int = 1536, cpus: int = 2, kernel_options: Sequence[str] = ()) -> Guest:
        """Return a guest that can be started several times with the same drives."""
        return Guest(self.folders.mktemp("guest"), drives, memory_mib, cpus=cpus, kernel_options=kernel_options)

    def run(self, *drives: Drive, script: str, limit_s: float = LIMIT_S, cpus: int = 2) -> Path:
        """Start a guest with these drives and run this script in it; return the folder that it had as /lab."""
        return self.guest(*drives, cpus=cpus).run(script, limit_s=limit_s)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory)


@dataclass(frozen=True, slots=True)
class Debian:
    """A factory of PCs with their own Debian."""

    folders: pytest.TempPathFactory
    base: Path
    tool: Path

    def pc(self, *drives: Drive) -> DebianPC:
        """Return a freshly installed PC with these drives, powered off."""
        return DebianPC(self.folders.mktemp("debian"), self.base, self.tool, drives)


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    return Debian(tmp_path_factory, system_disk.disk(), debian_tool.image(tmp_path_factory.mktemp("tool")))


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the one guest that `in_guest` runs; a test module that reads its output names it PART."""

    name: str  # the module, whose `main` runs in the guest
    drives: Sequence[Drive]
    words: tuple[str, ...] = ()
    limit_s: float = LIMIT_S

    @property
    def asked(self) -> str:
        return ":".join((self.name, *self.words))


GEOMETRIES = tuple(each for each in odd_disks.GEOMETRIES if THOROUGH or each.name in odd_disks.ALWAYS)
REFERENCE_TOOLS = Part("reference_tools", DRIVES, tuple(each.name for each in GEOMETRIES), REFERENCE_LIMIT_S)


@pytest.fixture(scope="session")
def said(lab: Lab, request: pytest.FixtureRequest) -> Path:
    """Run the parts in one guest, once for all tests of this session that read their output; return the folder."""
    if not (THOROUGH or kvm_works()):
        pytest.skip("takes a minute and both processors without KVM; `make test-all` runs it")
    found = [getattr(item, "module", None) for item in request.session.items if not cannot_run(item)]
    named = [getattr(module, "PART", None) for module in found]
    parts = list(dict.fromkeys(part for part in named if isinstance(part, Part)))
    script = f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.in_guest {' '.join(part.asked for part in parts)}"
    drives = [drive for part in parts for drive in part.drives]
    # Code for several processors takes 20 % longer on an emulated one.
    cpus = 2 if THOROUGH else 1
    return lab.run(*drives, script=script, limit_s=sum(part.limit_s for part in parts), cpus=cpus)
