"""Files that the user names: the name of a folder is refused, links of other users too; a mode is kept."""

import os
from pathlib import Path

import pytest

from aligntool.errors import ExitCode
from aligntool.units import MIB
from tests.run_aligntool import run_aligntool
from tests.thorough import sample

ENDS = ("new/", "new//", "new/.", "new/sub/", "new/file")


@sample(16)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "run", "NAME"),
        ("bench", "run", "NAME", "--passes", "1,5"),
        ("bench", "alignment", "NAME"),
        ("bench", "span", "NAME"),
        ("probe", "NAME"),
        ("trace", "record", "NAME", "--", "true"),
        ("trace", "record", "disk.img", "-o", "NAME", "--", "true"),
        ("report", "disk.img", "-o", "NAME"),
        ("plan", "layout", "disk.img", "--part", "rest:linux", "-o", "NAME"),
        ("bench", "run", "disk.img", "-o", "NAME"),
        ("probe", "disk.img", "-o", "NAME"),
        ("raid", "tune", "--level", "0", "disk.img", "disk2.img", "-o", "NAME"),
        ("snapshot", "-o", "NAME"),
    ],
    ids=" ".join,
)
def test_a_missing_folder_is_a_refusal(tmp_path: Path, words: tuple[str, ...], end: str) -> None:
    for name in ("disk.img", "disk2.img"):
        (tmp_path / name).write_bytes(bytes(4 * MIB))
    typed = (end if word == "NAME" else word for word in words)
    done = run_aligntool(*typed, cwd=tmp_path, env={"XDG_STATE_HOME": str(tmp_path / "state")})
    assert done.returncode in (ExitCode.USAGE, ExitCode.REFUSED), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk.img", "disk2.img"]


def test_an_archive_page_or_plan_cannot_have_the_name_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aligntool.cli.options import ResultFile
    from aligntool.errors import Refused
    from aligntool.linux.files import write_pages, write_snapshot

    monkeypatch.chdir(tmp_path)
    with pytest.raises(Refused):
        write_snapshot("new.tar.xz/", ())
    with pytest.raises(Refused):
        write_pages([("page.html/", b"")])
    with pytest.raises(Refused):
        ResultFile("plan.json/").write("{}")
    assert not list(tmp_path.iterdir())


@pytest.mark.needs_root
@pytest.mark.parametrize("chain", [False, True])
def test_a_link_that_another_user_put_into_a_folder_for_all_is_not_followed(tmp_path: Path, *, chain: bool) -> None:
    from aligntool.errors import Refused
    from aligntool.linux.files import write_file

    nobody, shared, secret, own = 65534, tmp_path / "shared", tmp_path / "secret", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o1777)
    secret.write_text("# HELP aligntool_disk_info")
    link = shared / "report.html"
    link.symlink_to(secret)
    own.symlink_to(link)
    write_file(str(own if chain else link), b"", overwrite=True)
    assert secret.read_text() == "" and link.is_symlink() and own.is_symlink()
    os.chown(link, nobody, nobody, follow_symlinks=False)
    with pytest.raises(Refused):
        write_file(str(own if chain else link), b"newer", overwrite=True)
    assert secret.read_text() == ""


def test_a_file_that_is_replaced_stays_unreadable_for_others(tmp_path: Path) -> None:
    from aligntool.linux.files import write_file

    name = tmp_path / "report.html"
    for mode in (0o600, 0o644, 0o640):
        write_file(str(name), b"# HELP aligntool_disk_info", overwrite=True)
        name.chmod(mode)
        write_file(str(name), b"new", overwrite=True)
        assert name.stat().st_mode & 0o777 == mode and name.read_bytes() == b"new"
        name.unlink()
