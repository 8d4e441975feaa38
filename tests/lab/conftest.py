"""The fixtures `lab` and `debian`: make PCs, each in a folder of its own that is gone after the session's tests."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab import debian as system_disk
from tests.lab import debian_tool
from tests.lab.debian_pc import DebianPC
from tests.lab.drives import Drive
from tests.lab.guest import LIMIT_S, Guest
from tests.lab.kernel import ROOT
from tests.lab.odd_disks import DRIVES

WITNESSES_LIMIT_S = 3600.0  # minutes on a quiet machine, but nobody waits for a processor for long


@dataclass(frozen=True, slots=True)
class Lab:
    """Where guests are made."""

    folders: pytest.TempPathFactory

    def guest(self, *drives: Drive, memory_mib: int = 1536) -> Guest:
        """A guest that can be started several times on the same drives."""
        return Guest(self.folders.mktemp("guest"), drives, memory_mib)

    def run(self, *drives: Drive, script: str, limit_s: float = LIMIT_S) -> Path:
        """Start a guest with these drives, run this script in it; the folder that it had as /lab."""
        return self.guest(*drives).run(script, limit_s=limit_s)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory)


@dataclass(frozen=True, slots=True)
class Debian:
    """Where PCs with a Debian of their own are made."""

    folders: pytest.TempPathFactory
    base: Path
    tool: Path

    def pc(self, *drives: Drive) -> DebianPC:
        """A freshly installed one, with these drives, and off."""
        return DebianPC(self.folders.mktemp("debian"), self.base, self.tool, drives)


@pytest.fixture(scope="session")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Debian:
    return Debian(tmp_path_factory, system_disk.disk(), debian_tool.image(tmp_path_factory.mktemp("tool")))


@pytest.fixture(scope="session")
def said(lab: Lab) -> Path:
    """What every program of one guest said of odd disks and of links; started once for all that read it."""
    script = f"cd '{ROOT}'\n'{sys.executable}' -m tests.lab.witnesses"
    return lab.run(*DRIVES, script=script, limit_s=WITNESSES_LIMIT_S)
