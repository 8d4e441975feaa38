"""Whether an array is assembled at the next boot: mdadm.conf, the initramfs, fstab, names; each rule on both sides."""

from dataclasses import replace

import pytest

from aligntool.audit.judge import audit
from aligntool.audit.report import Finding
from aligntool.inventory import Inventory
from aligntool.raid.running import arrays_of, find_array
from aligntool.render.audit import finding_lines
from aligntool.render.lines import text_of
from aligntool.system import MdadmConf, System, Unfinished, merge_confs, parse_crypttab, parse_mdadm_conf
from aligntool.units import GIB
from tests.audit.array_builders import FS, OTHER, RIGHT, UUID, finding_codes, fstab, image, lines, machine, system
from tests.audit.builders import made_disk

NOTHING = MdadmConf()
FORBIDDEN = ("AT620", "warning")
LINE, WRONG, INSIDE, FOREIGN = (("AT611", "warning"), ("AT612", "warning"), ("AT613", "warning"), ("AT614", "warning"))


def findings(files: System | None, level: str = "raid1", **facts: object) -> list[tuple[str, str]]:
    return finding_codes(audit(machine(level, files, **facts), {}))


def mounted(inventory: Inventory, place: str) -> Inventory:
    disk = replace(inventory.disks[-1], mounted_at=(place,))
    return replace(inventory, disks=(*inventory.disks[:-1], disk))


EDIT = "by hand, with an editor on {}: docs/by-hand.md#files-of-the-system"


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        (lines(RIGHT), []),
        (lines(f"array data uuid={UUID.upper()}"), []),  # keywords in any case, and a name below /dev/md
        (lines(f"ARRAY <ignore> UUID={UUID}"), [WRONG]),
        (lines("ARRAY /dev/md/data devices=/dev/sda1,/dev/sdb1"), [WRONG]),
        (lines("ARRAY /dev/md/x name=any:data"), [WRONG]),
        (lines(RIGHT + " name=ANY:data"), []),
        (lines(RIGHT + " name=host:data"), [WRONG]),  # mdadm before 4.3 compares the name too
        (lines(RIGHT, RIGHT), [WRONG]),  # mdadm --incremental: "we match both"
        (lines(RIGHT, f"ARRAY /dev/md/other UUID={OTHER} name=any:data"), []),
        (lines("ARRAY /dev/md/x name=any:other"), [LINE]),
        (lines(f"ARRAY /dev/md/data UUID={OTHER}"), [WRONG]),  # an array that does not exist any more
        (lines(f"ARRAY /dev/md/other UUID={OTHER}"), [LINE]),
        (lines("# " + RIGHT), [LINE]),
        (NOTHING, [LINE]),
        (lines("DEVICE /dev/sd*", RIGHT), [FORBIDDEN]),  # the members are nvme0n1p1 and nvme1n1p1
        (lines("DEVICE /dev/nvme0*", RIGHT), [FORBIDDEN]),
        (lines("DEVICE /dev/sd*", "DEVICE /dev/nvme*", RIGHT), []),
        (lines("DEVICE /dev/disk/by-id/*", RIGHT), []),
        (lines("DEVICE partitions", RIGHT), []),
        (lines("DEVICE partitions\r", RIGHT), [FORBIDDEN]),  # for mdadm a pattern
    ],
)
def test_the_array_needs_a_line_in_mdadm_conf_that_names_it_by_its_uuid(
    conf: MdadmConf, expected: list[tuple[str, str]]
) -> None:
    assert findings(system(conf=conf)) == expected


@pytest.mark.parametrize("line", ["DEVICE /dev/sd*", "DEVICE partitions\r"])
def test_the_hint_for_a_line_that_forbids_members_names_every_file(line: str) -> None:
    """The line may be in any of them."""
    conf = merge_confs([lines(RIGHT), parse_mdadm_conf(line, "/etc/mdadm/mdadm.conf.d/own.conf")])
    (found,) = audit(machine("raid1", system(conf=conf)), {}).findings
    files = "/etc/mdadm/mdadm.conf, /etc/mdadm/mdadm.conf.d/own.conf"
    assert found.next == f"by hand, with an editor on {files}: docs/by-hand.md#files-of-the-system"
    assert ("carriage return" in found.evidence[1]) == line.endswith("\r")


def test_a_line_with_the_uuid_of_another_present_array_belongs_to_that_array() -> None:
    inventory = machine("raid1", system(conf=lines(RIGHT.replace(UUID, OTHER))))
    assert finding_codes(audit(inventory, {})) == [WRONG]
    stopped = made_disk("2048+4096 linux_raid_member", name="sdz")
    part = stopped.partitions[0]
    layer = replace(part.content[0], uuid="89abcdef-0123-4567-89ab-cdef01234567")
    stopped = replace(stopped, partitions=(replace(part, content=(layer,)),))
    assert finding_codes(audit(replace(inventory, disks=(*inventory.disks, stopped)), {})) == [LINE]


@pytest.mark.parametrize(
    ("made", "place", "expected"),
    [
        (image(RIGHT), "/srv", []),
        (image("HOMEHOST <system>"), "/srv", [INSIDE]),
        (image(), "/srv", [INSIDE]),
        (image(f"ARRAY /dev/md/data UUID={OTHER}"), "/srv", [INSIDE]),
        (image(RIGHT, RIGHT), "/srv", [INSIDE]),
        (image(mdadm=False), "/srv", []),  # it starts later, by the mdadm.conf of the system
        (image(mdadm=False), "/", [("AT613", "error")]),
        (image(mdadm=False), "/usr", [("AT613", "error")]),
        (image(mdadm=False), "/var", []),
        (image(maker="dracut"), "/srv", []),  # dracut assembles only the arrays it is configured for
        (image(maker="dracut", asked=(UUID,)), "/srv", [INSIDE]),
        (image(maker="dracut", asked=(OTHER,)), "/srv", []),
        (image(RIGHT, maker="dracut", asked=(UUID,)), "/", []),
        (image(maker="dracut", mdadm=False), "/", [("AT613", "error")]),
        (image(maker="mkinitcpio"), "/srv", [INSIDE]),
    ],
)
def test_an_initramfs_that_assembles_the_array_contains_its_line(
    made: object, place: str, expected: list[tuple[str, str]]
) -> None:
    files = system(images=(made,))  # type: ignore[arg-type]
    assert finding_codes(audit(mounted(machine("raid1", files), place), {})) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((f"rd.md.uuid={UUID}",), [INSIDE]),
        ((f"rd.md.uuid={UUID.replace(':', '')}",), [INSIDE]),
        (("rd.auto",), [INSIDE]),
        (("rd.auto=1",), [INSIDE]),
        (("rd.auto=0",), []),
        ((f"rd.md.uuid={OTHER}",), []),
    ],
)
def test_arrays_on_the_kernel_command_line_count_for_dracut_too(
    words: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    assert findings(system(images=(image(maker="dracut"),), words=words)) == expected


# mkinitcpio has lsinitcpio(1), dracut lsinitrd(1), initramfs-tools lsinitramfs(8).
@pytest.mark.parametrize(
    ("family", "program"),
    [
        ("debian", "lsinitramfs"),
        ("debian-dracut", "lsinitrd"),
        ("fedora", "lsinitrd"),
        ("opensuse", "lsinitrd"),
        ("arch", "lsinitcpio"),
    ],
)
def test_an_unread_initramfs_is_to_be_inspected_with_the_program_of_the_system(family: str, program: str) -> None:
    for why, typed in (
        ("its files are in a squashfs image inside it", f"sudo {program} /boot/initrd.img-6.1"),
        ("needs root", "sudo aligntool audit"),
    ):
        files = system(images=(replace(image(), unseen=why),), family=family)
        found = audit(machine("raid1", files), {}).findings
        assert [one.next for one in found if one.code.value == "AT901"] == [typed]


def test_a_file_that_cannot_be_read_is_named_and_its_arrays_are_not_reported_missing() -> None:
    report = audit(machine("raid1", system(conf=MdadmConf(unread=("/etc/mdadm/mdadm.conf",)))), {})
    assert finding_codes(report) == []
    assert [(one.summary, one.next) for one in report.findings if one.code.value == "AT901"] == [
        ("the arrays in /etc/mdadm/mdadm.conf are unknown: it cannot be read", "sudo aligntool audit")
    ]


def test_an_unreadable_initramfs_is_reported_as_unknown() -> None:
    unseen = replace(image(), unseen="needs root", has_mdadm=False)
    report = audit(machine("raid1", system(images=(unseen,))), {})
    assert finding_codes(report) == []
    assert [one.summary for one in report.findings if one.code.value == "AT901"] == [
        "the arrays in the initramfs /boot/initrd.img-6.1 are unknown: needs root"
    ]


@pytest.mark.parametrize(
    ("name", "homehost", "expected"),
    [
        ("here:data", None, [LINE]),
        ("any:data", None, [LINE]),
        ("data", None, [LINE]),
        (None, None, [LINE]),
        ("there:data", None, [LINE, FOREIGN]),
        ("there:data", "there", [LINE]),
        ("there:data", "<ignore>", [LINE]),
        ("here:data", "there", [LINE, FOREIGN]),
    ],
)
def test_an_array_of_another_host_without_a_line_is_foreign(
    name: str | None, homehost: str | None, expected: list[tuple[str, str]]
) -> None:
    conf = MdadmConf(("/etc/mdadm/mdadm.conf",), (), homehost)
    assert findings(system(conf=conf), name=name) == expected
    named = replace(conf, arrays=lines(RIGHT).arrays)
    assert findings(system(conf=named), name=name) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"UUID={FS} /srv ext4 defaults,nofail 0 2", []),
        (f"UUID={FS} /srv ext4 noauto 0 2", []),
        (f"UUID={FS} /srv ext4 defaults 0 2", [("AT616", "info")]),
        (f"UUID={FS} /srv ext4", [("AT616", "info")]),
        (f"UUID={FS} / ext4 defaults 0 1", []),
        (f"UUID={FS} /home ext4 defaults 0 2", []),
        (f"UUID={FS} /var/lib/x ext4 defaults 0 2", []),
        ("UUID=aaaaaaaa-2222-4333-8444-555555555555 /srv ext4 defaults 0 2", []),  # of another disk
        ("/dev/md127 /srv ext4 nofail 0 2", [("AT615", "warning")]),
        ("/dev/md127p1 /srv ext4 nofail 0 2", [("AT615", "warning")]),
        ("/dev/md/data /srv ext4 nofail 0 2", []),
        ("#/dev/md127 /srv ext4 nofail 0 2", []),
        (f"UUID={FS} /srv ext4 nofail 0 2\r", []),
        (f"UUID={FS} /srv ext4 noatime,nofail\r", [("AT616", "info")]),  # systemd: an unknown option "nofail\r"
    ],
)
def test_fstab_should_use_a_stable_name_and_allow_a_missing_array(line: str, expected: list[tuple[str, str]]) -> None:
    assert findings(system(fstab=fstab(line))) == expected


def test_the_text_of_an_audit_shows_a_mount_without_nofail_among_its_notes() -> None:
    report = audit(machine(system=system(fstab=fstab(f"UUID={FS} /srv ext4 defaults 0 2"))), {})
    text = "".join(text_of(finding_lines(report, width=200, verbose=False, quiet=False)))
    assert "fstab mounts it at /srv without nofail" in text and "raid persist" in text


def test_a_number_that_an_array_line_preserves_is_only_a_note() -> None:
    conf = lines(f"ARRAY /dev/md0 UUID={UUID}")
    files = system(
        conf=conf, fstab=fstab("/dev/md0 /srv ext4 nofail 0 2"), images=(image(f"ARRAY /dev/md0 UUID={UUID}"),)
    )
    assert findings(files) == [("AT615", "info")]


def test_crypttab_and_the_kernel_command_line_are_checked_for_array_numbers() -> None:
    files = system(crypttab=parse_crypttab("data /dev/md127 none luks"), words=("root=/dev/md127", "resume=UUID=1-2"))
    assert findings(files) == [("AT615", "warning")] * 2


def numbered(inventory: Inventory) -> Finding:
    (found,) = [one for one in audit(inventory, {}).findings if one.code.value == "AT615"]
    return found


@pytest.mark.parametrize(
    ("name", "conf"),
    [
        ("here:0", NOTHING),  # as `mdadm --create /dev/md0` names it
        ("0", NOTHING),
        ("any:data", lines(f"ARRAY /dev/md0 UUID={UUID}")),  # the initramfs does not have the line yet
    ],
)
def test_the_fix_for_an_array_number_names_the_running_array_as_raid_show_does(name: str, conf: MdadmConf) -> None:
    """The array of /dev/md0 is /dev/md127 after a boot without its line."""
    files = system(conf=conf, fstab=fstab("/dev/md0 /srv ext4 nofail 0 2"))
    inventory = machine("raid1", files, name=name)
    found = numbered(inventory)
    assert (found.disk, found.next) == ("md127", "sudo aligntool raid persist /dev/md127")
    assert "fstab uses /dev/md0, which means md127" in found.summary
    assert find_array(inventory.disks, found.next.split()[-1], command="").name == "md127"
    (shown,) = arrays_of(audit(inventory, {}), ["md127"])
    assert any("AT615" in line for line in shown.findings) == (conf == NOTHING)  # it does not report notes


@pytest.mark.parametrize(
    ("line", "conf", "place", "why"),
    [
        ("/dev/md0 /srv ext4 nofail 0 2", lines(RIGHT), "/srv", "md127 is mounted at /srv now: "),
        (
            "/dev/md0 /srv auto nofail 0 2",
            lines("ARRAY /dev/md0 name=any:data"),
            "/mnt",
            "the name of its ARRAY line: ",
        ),
        ("/dev/md0 /srv ext4 nofail 0 2", lines(RIGHT), "/mnt", "md127 is the only array with ext4: "),
    ],
)
def test_if_the_array_of_a_number_is_likely_the_replacement_line_is_stated(
    line: str, conf: MdadmConf, place: str, why: str
) -> None:
    """`raid persist` does not touch a line that names another node than the array has or had."""
    found = numbered(mounted(machine("raid1", system(conf=conf, fstab=fstab(line))), place))
    assert (found.disk, found.next) == ("md127", EDIT.format("/etc/fstab"))
    assert found.evidence[-1].endswith(f"{why}replace it with UUID={FS}")


@pytest.mark.parametrize("line", ["/dev/md0 /srv xfs nofail 0 2", "/dev/md0 /srv auto nofail 0 2"])
def test_a_number_of_an_unknown_array_names_no_array_and_refers_to_the_file(line: str) -> None:
    found = numbered(machine("raid1", system(fstab=fstab(line))))
    assert (found.disk, found.next) == (None, EDIT.format("/etc/fstab"))
    assert "the intended array is unknown" in found.evidence[-1]
    crypt = numbered(machine("raid1", system(crypttab=parse_crypttab("data /dev/md0 none luks"))))
    assert (crypt.disk, crypt.next) == (None, EDIT.format("/etc/crypttab"))


def test_no_array_is_named_if_two_of_them_match() -> None:
    inventory = machine("raid1", system(fstab=fstab("/dev/md0 /srv ext4 nofail 0 2")))
    one = inventory.disks[-1]
    assert one.array is not None
    facts = replace(one.array, uuid=OTHER, name="any:other", members=(), links=())
    other = replace(one, name="md126", path="/dev/md126", slaves=(), array=facts)
    assert numbered(inventory).disk == "md127"
    assert numbered(replace(inventory, disks=(*inventory.disks, other))).disk is None


def test_an_array_number_in_a_kernel_option_is_searched_for_in_boot_loader_files() -> None:
    found = numbered(mounted(machine("raid1", system(words=("root=/dev/md127",))), "/"))
    assert found.disk == "md127" and f"replace it with UUID={FS}, and regenerate" in found.evidence[-1]
    assert found.next.startswith("sudo grep -rsw /dev/md127 /etc/default/grub ")


def test_an_unfinished_creation_is_an_error_even_without_a_running_array() -> None:
    files = replace(system(), unfinished=(Unfinished("/dev/md/data: its creation is not finished", UUID),))
    assert finding_codes(audit(Inventory((), system=files), {})) == [("AT617", "error")]


def test_what_an_unfinished_change_has_not_configured_yet_is_not_missing() -> None:
    """Its plan has the ARRAY line, the initramfs and the late start among its last steps."""
    files = replace(system(conf=NOTHING, images=(image(),)), late_start=False)
    missing = {"AT611", "AT613", "AT618"}
    assert {code for code, _ in findings(files)} == missing
    for starts, found in ((UUID, {"AT617"}), (OTHER, missing | {"AT617"}), ("", missing | {"AT617"})):
        begun = replace(files, unfinished=(Unfinished("/dev/md/data: its creation is not finished", starts),))
        assert {code for code, _ in findings(begun)} == found


def test_without_the_system_files_there_are_no_findings_about_them() -> None:
    assert findings(None, name="there:data") == []


def test_firmware_arrays_are_not_expected_in_mdadm_conf() -> None:
    assert findings(system(conf=NOTHING), metadata="external:/md126/0") == []


def test_a_device_stacked_on_an_array_counts_as_use_of_the_array() -> None:
    """A volume on the array, mounted as the root: the initramfs needs the array."""
    inventory = machine("raid1", system(images=(image(mdadm=False),)))
    volume = replace(made_disk(name="dm-0", size=GIB), slaves=("md127",), mounted_at=("/",))
    assert finding_codes(audit(replace(inventory, disks=(*inventory.disks, volume)), {})) == [("AT613", "error")]


@pytest.mark.parametrize(
    ("stored", "name", "place", "expected"),
    [
        (4096, "initrd.img-6.12.57+deb13-amd64", "/srv", [("AT613", "warning")]),
        (512, "initramfs-6.18.7-200.fc43.x86_64.img", "/", [("AT613", "error")]),
        (512, "initrd.img-7.2.13+deb14-amd64", "/", []),
        (512, "initramfs-linux.img", "/", []),
        (0, "initrd.img-6.12.57+deb13-amd64", "/", []),
        (None, "initrd.img-6.12.57+deb13-amd64", "/", []),
    ],
)
def test_kernels_before_6_19_do_not_assemble_arrays_that_store_their_block_size(
    stored: int | None, name: str, place: str, expected: list[tuple[str, str]]
) -> None:
    """Linux 6.18, drivers/md/md.c, super_1_load: "Some padding is non-zero ..., might be a new feature"."""
    files = system(images=(replace(image(RIGHT), path=f"/boot/{name}"),))
    array = mounted(machine("raid1", files, stored_block_size=stored), place)
    assert finding_codes(audit(array, {})) == expected


@pytest.mark.parametrize(
    ("running", "expected"), [("6.12.0-200.el10", []), ("6.12.0-250.el10", []), ("6.13.1", [INSIDE]), ("", [INSIDE])]
)
def test_the_image_of_the_running_kernel_is_not_reported_as_one_of_an_older_kernel(
    running: str, expected: list[tuple[str, str]]
) -> None:
    """Distributions backport changes of md without another version number."""
    made = replace(image(RIGHT), path="/boot/initramfs-6.12.0-200.el10.x86_64.img")
    files = replace(system(images=(made,)), kernel=running)
    assert findings(files, stored_block_size=4096) == expected
