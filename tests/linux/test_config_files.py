"""mdadm.conf, fstab and crypttab as they are written by hand, compared with findmnt and mdadm.conf(5)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aligntool.system import array_uuid, concerns_arrays, merge_confs, parse_crypttab, parse_fstab, parse_mdadm_conf
from tests.conftest import run

UUID = "01234567:89abcdef:01234567:89abcdef"
FSTAB = """# <file system> <mount point>
UUID=11111111-2222-4333-8444-555555555555 / ext4 errors=remount-ro 0 1
/dev/md127\t/srv/with\\040blank  xfs   noatime,nofail 0 0
LABEL=data /data btrfs defaults
   /dev/md/x   none swap sw 0 0

UUID="aaaa-bbbb" /boot/efi vfat umask=0077 0 1
tmpfs /tmp tmpfs
"""


@pytest.mark.needs_tools("findmnt")
def test_fstab_is_read_as_by_findmnt(tmp_path: Path) -> None:
    file = tmp_path / "fstab"
    file.write_text(FSTAB)
    said = run("findmnt", "--tab-file", file, "--noheadings", "--raw", "--output", "SOURCE,TARGET,FSTYPE,OPTIONS")
    # findmnt shows quotes as they are; what it looks for is without them (libblkid, blkid_parse_tag_string)
    told = [line.replace("\\x20", " ").replace('"', "").split(" ") for line in said.splitlines()]
    found = parse_fstab(FSTAB)
    assert len(found) == len(told) == 6
    for line, words in zip(found, told, strict=True):
        text = " ".join((line.spec, line.place, line.kind, ",".join(line.options) or "")).split(" ")
        assert [word for word in text if word] == [word for word in words if word]
    assert all(line.text in FSTAB.splitlines() for line in found)


# mdadm.conf(5), SYNTAX: case, abbreviation to three letters, continuation, quotes, comments
CONF = f"""# ARRAY /dev/md9 UUID={UUID}
DEVICE partitions
HOMEHOST <system>
  homeless
ARR /dev/md/data metadata=1.2 UUID={UUID.replace(":", "")} name=host:data # and so on
array /dev/md1
   level=raid1 num-devices=2
   UUID=89ABCDEF:01234567:89ABCDEF:01234567

ARRAY <ignore> UUID={UUID}
ARRAY /dev/md2 devices=/dev/sda1,/dev/sdb1 super-minor=2
ARRAY "/dev/md/with blank" name="host:with blank"
ar /dev/md3
MAILADDR root
"""


def test_mdadm_conf_is_read_as_its_manual_specifies() -> None:
    conf = parse_mdadm_conf(CONF, "/etc/mdadm.conf")
    assert conf.homehost == "<system>"
    found = [(line.device, line.uuid, line.name, line.pinned, line.joined) for line in conf.arrays]
    assert found == [
        ("/dev/md/data", UUID, "host:data", (), False),
        ("/dev/md1", "89abcdef:01234567:89abcdef:01234567", None, (), True),
        ("<ignore>", UUID, None, (), False),
        ("/dev/md2", None, None, ("devices", "super-minor"), False),
        ("/dev/md/with blank", None, "host:with blank", (), False),
    ]
    assert all(line.text in CONF.splitlines() for line in conf.arrays if not line.joined)


@pytest.mark.parametrize(
    ("line", "device", "uuid", "name"),
    [
        (f'ARRAY /dev/md0 UUID={UUID} name="host:data', "/dev/md0", UUID, "host:data"),
        (f"ARRAY /dev/md0 UUID='{UUID} # and so on", "/dev/md0", None, None),  # one word, and so not a UUID
        (f'ARRAY <ignore> name="a b UUID={UUID}', "<ignore>", None, f"a b UUID={UUID}"),
        (f"ARRAY /dev/md\"0\" '#'name=x UUID={UUID}#1 name='a'\"b\"", "/dev/md0", None, "ab"),
    ],
)
def test_an_unbalanced_quotation_mark_extends_to_the_end_of_the_line(
    line: str, device: str, uuid: str | None, name: str | None
) -> None:
    """As mdadm's config.c, conf_word, reads it."""
    (found,) = parse_mdadm_conf(line, "/etc/mdadm.conf").arrays
    assert (found.device, found.uuid, found.name) == (device, uuid, name)


def test_a_carriage_return_is_a_part_of_the_last_word() -> None:
    """mdadm 4.2 prints "bad uuid" for the first line: only blanks and tabs end a word."""
    text = f"ARRAY /dev/md/data UUID={UUID}\r\nARRAY /dev/md1 UUID={UUID} name=any:a\r\nHOMEHOST <system>\r\n"
    conf = parse_mdadm_conf(f"{text}DEVICE partitions\r\n", "/etc/mdadm.conf")
    assert [(line.uuid, line.name) for line in conf.arrays] == [(None, None), (UUID, "any:a\r")]
    assert conf.homehost == "<system>\r" and conf.forbidden(["/dev/sda1"]) == ["/dev/sda1"]
    assert all(line.text in text.split("\n") for line in conf.arrays)


@pytest.mark.parametrize("between", ["", "# a comment\n", "   # an indented one\n", "\n", " \n\n"])
def test_comments_and_empty_lines_do_not_end_a_line(between: str) -> None:
    """As mdadm's util.c, conf_word, reads them."""
    text = f"ARRAY /dev/md/data  # mine\n{between} UUID={UUID}\nDEVICE /dev/sd*\n{between}\t/dev/nvme*\n"
    conf = parse_mdadm_conf(text, "/etc/mdadm.conf")
    assert conf.devices == ("/dev/sd*", "/dev/nvme*")
    assert [(line.device, line.uuid, line.joined) for line in conf.arrays] == [("/dev/md/data", UUID, True)]


def test_several_files_are_read_as_one_file() -> None:
    first = parse_mdadm_conf("HOMEHOST one\nARRAY /dev/md0\n", "/a")
    both = merge_confs([first, parse_mdadm_conf("HOMEHOST two\nARRAY /dev/md1\n", "/b")])
    assert both.files == ("/a", "/b") and both.homehost == "one"
    assert [line.file for line in both.arrays] == ["/a", "/b"]


def test_the_device_below_a_mapping_is_read_from_crypttab() -> None:
    (line,) = parse_crypttab("# x /dev/md0\ndata /dev/md127 /etc/keys/secret luks\n")
    assert (line.spec, line.place) == ("/dev/md127", "data")


@pytest.mark.parametrize(
    ("word", "kept"),
    [("root=/dev/md0", True), ("rd.md.uuid=1", True), ("resume=x", True), ("password=secret", False), ("quiet", False)],
)
def test_only_the_kernel_parameters_that_concern_arrays_are_kept(word: str, kept: bool) -> None:
    assert concerns_arrays(word) == kept


@pytest.mark.parametrize("text", [UUID, UUID.replace(":", ""), "01234567-89ab-cdef-0123-456789abcdef", UUID.upper(),
                                  UUID.replace(":", ".")])  # fmt: skip
def test_every_notation_of_an_arrays_uuid_is_recognised(text: str) -> None:
    assert array_uuid(text) == UUID
    assert array_uuid(text[:-1]) is None and array_uuid(None) is None


@given(text=st.text(max_size=400))
def test_any_text_is_read_to_its_end_and_every_line_comes_from_it(text: str) -> None:
    for line in (*parse_fstab(text), *parse_crypttab(text)):
        assert line.text in text.split("\n")
    for each in parse_mdadm_conf(f"ARRAY {text}", "x").arrays:
        assert each.joined or each.text == each.text.rstrip(" \t")
