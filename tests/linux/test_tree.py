"""A captured tree is untrusted: whatever it contains, nothing outside it is read and nothing hangs."""

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aligntool.errors import Refused
from aligntool.linux.sysfs import Tree, as_number, captured_tree
from tests.thorough import examples


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "tree/sys/block").mkdir(parents=True)
    (tmp_path / "tree/sys/devices/a/queue").mkdir(parents=True)
    (tmp_path / "tree/sys/devices/a/size").write_text(" 42\n")
    return tmp_path / "tree"


def link(root: Path, path: str, target: str) -> None:
    (root / path).symlink_to(target)


def test_relative_and_absolute_links_lead_to_the_same_place_inside_the_tree(root: Path) -> None:
    link(root, "sys/block/relative", "../devices/a")
    link(root, "sys/block/absolute", "/sys/devices/a")
    tree = Tree(str(root))
    for name in ("relative", "absolute"):
        assert tree.real(f"/sys/block/{name}") == "/sys/devices/a"
        assert tree.number(f"/sys/block/{name}/size") == 42
        assert tree.names(f"/sys/block/{name}") == ["queue", "size"]


@pytest.mark.parametrize(
    "target", ["../../../secret", "/../secret", "../../../../../../../../../../etc/passwd", "/etc/passwd"]
)
def test_a_link_that_leads_out_of_the_tree_is_not_followed(root: Path, target: str) -> None:
    link(root, "sys/block/out", target)
    tree = Tree(str(root))
    assert tree.text("/sys/block/out") is None
    assert tree.real("/sys/block/out") is None
    assert not tree.exists("/sys/block/out")


def test_a_folder_that_is_a_link_out_of_the_tree_is_empty(root: Path) -> None:
    link(root, "sys/devices/out", str(root.parent))
    tree = Tree(str(root))
    assert tree.names("/sys/devices/out") == []
    assert tree.text("/sys/devices/out/secret") is None


def test_dots_in_a_requested_path_stop_at_the_root(root: Path) -> None:
    tree = Tree(str(root))
    assert tree.text("/sys/../../secret") is None
    assert tree.real("/sys/block/../devices/a") == "/sys/devices/a"
    assert tree.real("/../../sys") == "/sys"


def test_circular_links_end(root: Path) -> None:
    link(root, "sys/block/one", "two")
    link(root, "sys/block/two", "one")
    link(root, "sys/block/self", "self/self")
    tree = Tree(str(root))
    for name in ("one", "two", "self"):
        assert tree.real(f"/sys/block/{name}") is None
        assert tree.text(f"/sys/block/{name}") is None


def test_a_pipe_in_place_of_an_attribute_neither_hangs_nor_is_opened(root: Path) -> None:
    os.mkfifo(root / "sys/devices/a/ro")
    link(root, "sys/devices/a/removable", "ro")
    tree = Tree(str(root))
    assert tree.text("/sys/devices/a/ro") is None
    assert tree.text("/sys/devices/a/removable") is None
    assert tree.content("/sys/devices/a/ro") is None


def test_a_folder_in_place_of_an_attribute_has_no_text(root: Path) -> None:
    tree = Tree(str(root))
    assert tree.text("/sys/devices/a/queue") is None
    assert tree.names("/sys/devices/a/size") == []


def test_a_huge_file_is_read_only_up_to_the_limit(root: Path) -> None:
    with (root / "sys/devices/a/huge").open("wb") as file:
        file.truncate(1 << 40)
    tree = Tree(str(root))
    assert tree.text("/sys/devices/a/huge") == ""
    assert len(tree.content("/sys/devices/a/huge", 100_000) or b"") == 100_000


@pytest.mark.needs_root
def test_a_device_node_in_a_captured_tree_is_not_opened(root: Path) -> None:
    os.mknod(root / "sys/devices/a/node", 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero
    assert Tree(str(root)).text("/sys/devices/a/node") is None


@pytest.mark.parametrize("text", ["", " ", "abc", "1e9", "0x10", "--1", "1_000", "٣", "9" * 21, "-", "1 2", "\0"])
def test_text_that_is_not_a_number_is_read_as_none(text: str) -> None:
    assert as_number(text) is None


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-1", -1), ("18446744073709551615", 2**64 - 1)])
def test_numbers_are_read_as_the_kernel_prints_them(text: str, number: int) -> None:
    assert as_number(text) == number


@given(st.text(alphabet="/.ab\0é", max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
def test_no_path_reads_outside_the_tree(root: Path, path: str) -> None:
    tree = Tree(str(root))
    assert tree.text(f"/{path}/../../secret") in (None, "42")
    real = tree.real(f"/{path}")
    assert real is None or os.path.realpath(f"{root}{real}").startswith(str(root.resolve()))


@pytest.mark.parametrize("name", ["md0;touch it", "sda$(touch it)", "sda --stop", "sda\n", "sd'a", "sda\u202e"])
def test_a_captured_device_whose_name_a_shell_would_not_take_as_it_is_does_not_exist(root: Path, name: str) -> None:
    """Names of devices are printed in commands."""
    (root / "sys/devices" / name / "queue").mkdir(parents=True)
    (root / "sys/devices" / name / "size").write_text("1")
    link(root, "sys/block/a", f"../devices/{name}")
    link(root, "sys/block/b", "../devices/a")
    tree = captured_tree(str(root))
    assert tree.names("/sys/devices") == ["a"]
    assert tree.real("/sys/block/a") is None and tree.real("/sys/block/b") == "/sys/devices/a"
    assert tree.text(f"/sys/devices/{name}/size") is None and tree.names(f"/sys/devices/{name}") == []


class TestWhereTheTreeIs:
    def test_the_folder_above_sys_is_accepted(self, root: Path) -> None:
        assert captured_tree(str(root)).number("/sys/devices/a/size") == 42

    def test_the_sys_folder_itself_is_accepted(self, root: Path) -> None:
        assert captured_tree(str(root / "sys")).number("/sys/devices/a/size") == 42

    def test_a_folder_one_level_higher_is_accepted_if_it_has_one_machine(self, root: Path) -> None:
        assert captured_tree(str(root.parent)).number("/sys/devices/a/size") == 42

    def test_two_machines_in_one_folder_are_refused(self, root: Path) -> None:
        (root.parent / "other one/sys/block").mkdir(parents=True)
        with pytest.raises(Refused, match="several captured machines: other one, tree") as refusal:
            captured_tree(str(root.parent))
        assert shlex.split(refusal.value.hint) == ["--sysroot", f"{root.parent}/other one"]

    def test_a_folder_without_sysfs_is_refused_with_a_hint(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="is not a snapshot: it has no sys/ folder") as refusal:
            captured_tree(str(tmp_path))
        assert "snapshot" in refusal.value.hint

    def test_a_missing_path_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(Refused, match="nothing: No such file or directory"):
            captured_tree(str(tmp_path / "nothing"))

    def test_the_root_of_this_machine_is_read_as_a_captured_tree_not_as_the_live_one(self) -> None:
        assert not captured_tree("/").live
