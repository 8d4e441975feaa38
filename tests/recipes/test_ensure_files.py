"""Files of `raid ensure`: each is read as the schema describes it, and `recipes check` shows it."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from aligntool.change import Bind, DriveSelection, EnsureGoal, RaidGoal
from aligntool.documents import schema_texts
from aligntool.errors import Refused
from aligntool.recipes.goals import parse_recipe, text_of_settings
from aligntool.units import GIB, KIB
from tests.run_aligntool import run_aligntool
from tests.schemas import check, strict

SCHEMA = strict(json.loads(schema_texts()["ensure"]))
LEAST = 'format = 1\nkind = "ensure"\nlevel = "raid0"\n\n[drives]\nselect = "all-unused"\n'
FULL = """
format = 1
kind = "ensure"
summary = "scratch space"
level = "raid10"
name = "scratch"
workload = "lsm"
chunk = "256KiB"
layout = "f2"
bitmap = "none"
filesystem = "ext4"
mount_at = "/mnt/scratch"
mount_options = ["noatime", "discard"]
spare_room = "1GiB"
owner = "kubelet"
group = "1000"
mode = "2770"

[[bind]]
from = "pods"
to = "/var/lib/kubelet"

[drives]
select = ["instance-store", "all-unused"]
model = ["Amazon*", "nvme_card"]
by_id = "nvme-Amazon_*"
pci = ["0000:0[1-4]:00.0"]
size_from = "100GiB"
size_to = "8TiB"
at_least = 2
at_most = 16
none = "nothing"
wipe = "foreign"
serials = ["S1", "S2"]
"""


def parsed(text: str) -> EnsureGoal:
    goal = parse_recipe("/etc/aligntool/arrays.d/data.toml", text).goal
    assert isinstance(goal, EnsureGoal)
    return goal


def test_every_key_is_read() -> None:
    assert parsed(LEAST) == EnsureGoal(RaidGoal("raid0", name="data"), DriveSelection(unused=True))
    array = RaidGoal(
        "raid10", name="scratch", workload="lsm", chunk=256 * KIB, layout="f2", bitmap="none", filesystem="ext4",
        mount_at="/mnt/scratch", mount_options=("noatime", "discard"), spare_room=GIB, owner="kubelet", group="1000",
        mode="2770", binds=(Bind("pods", "/var/lib/kubelet"),),
    )  # fmt: skip
    drives = DriveSelection(
        unused=True, instance_store=True, models=("Amazon*", "nvme_card"), names=("nvme-Amazon_*",),
        addresses=("0000:0[1-4]:00.0",), least_size=100 * GIB, most_size=8192 * GIB, least=2, most=16,
        may_be_none=True, wiped_serials=("S1", "S2"),
    )  # fmt: skip
    assert parsed(FULL) == EnsureGoal(array, drives)
    for text in (LEAST, FULL):
        jsonschema.validate(tomllib.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('select = "all-unused"', "", "nothing selects a drive"),
        ('select = "all-unused"', "select = []", "nothing selects a drive"),
        ('select = "all-unused"', 'select = "all"', "'all' is not a selector"),
        ('"all-unused"', '"all-unused"\nserials = ["S1"]', "need each other"),
        ('"all-unused"', '"all-unused"\nwipe = "foreign"', "need each other"),
        ('"all-unused"', '"all-unused"\nwipe = "all"\nserials = ["S1"]', "wipe cannot be 'all'"),
        ('"all-unused"', '"all-unused"\nat_least = 0', "at_least must be a whole number"),
        ('"all-unused"', '"all-unused"\none = "xfs"', "one cannot be 'xfs'"),
        ('"all-unused"', '"all-unused"\nmodels = "a"', "unknown key 'models'"),
        ('"all-unused"', '"all-unused"\nsize_from = 5', "size_from must be a string"),
        ('level = "raid0"', "", "level is missing"),
        ('level = "raid0"', 'level = "raid0"\ndevices = "a"', "unknown key 'devices'"),
        ('level = "raid0"', 'level = "raid0"\nmembers = "partitions"', "existing partitions cannot be selected"),
        ('level = "raid0"', 'level = "raid0"\nowner = "a b"', "owner cannot be 'a b'"),
        ('level = "raid0"', 'level = "raid0"\ngroup = ""', "group must be a string"),
        ('level = "raid0"', 'level = "raid0"\nmode = "u+x"', "mode cannot be 'u.x'"),
        ('level = "raid0"', 'level = "raid0"\nmode = 750', "mode must be a string"),
        ('level = "raid0"', 'level = "raid0"\nbind = [{from = "a/b", to = "/c"}]', "from cannot be 'a/b'"),
        ('level = "raid0"', 'level = "raid0"\nbind = [{from = "..", to = "/c"}]', "from cannot be '..'"),
        ('level = "raid0"', 'level = "raid0"\nbind = [{from = "a", to = "c"}]', "to cannot be 'c'"),
        ('level = "raid0"', 'level = "raid0"\nbind = [{from = "a"}]', "to is missing"),
        ('level = "raid0"', 'level = "raid0"\nbind = [{from = "a", to = "/c", mode = "1"}]', "unknown key 'mode'"),
        ('level = "raid0"', 'level = "raid0"\nbind = "a"', "bind must be a list of tables"),
        ('level = "raid0"', 'level = "raid0"\nmount_at = "mnt/scratch"', "'mnt/scratch' is not a valid mount point"),
        ('level = "raid0"', 'level = "raid0"\nmount_at = "/a b"', "'/a b' is not a valid mount point"),
        ('[drives]\nselect = "all-unused"', "", "the table of the drives is missing"),
        ('[drives]\nselect = "all-unused"', 'drives = "a"', "the table of the drives is missing"),
    ],
)
def test_a_file_that_is_not_valid_is_refused_as_by_the_schema(before: str, after: str, why: str) -> None:
    text = LEAST.replace(before, after)
    with pytest.raises(Refused, match=why):
        parsed(text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(text), SCHEMA)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('"all-unused"', '"all-unused"\nat_least = 3\nat_most = 2', "at_most is less than at_least"),
        ('"all-unused"', '"all-unused"\nmodel = "a[b"', "a bracket is not closed"),
        (
            '"raid0"',
            '"raid0"\nmount_at = "none"\n[drives]\none = "filesystem"\n#',
            "needs a file system that is mounted",
        ),
        ('"raid0"', '"raid0"\nfilesystem = "swap"\n[drives]\none = "filesystem"\n#', "needs a file system that is"),
        ('"raid0"', '"raid0"\nesp_size = "1GiB"\n[drives]\none = "filesystem"\n#', "makes one partition"),
        ('"raid0"', '"raid0"\nmembers = "whole-drives"\n[drives]\none = "filesystem"\n#', "makes one partition"),
        ('"raid0"', '"raid10"\nlayout = "f2"\n[drives]\none = "filesystem"\n#', "exclude each other"),
        ('"raid0"', '"raid10"\nlayout = "f2"\n[drives]\none = "raid0"\n#', "exclude each other"),
        ('"raid0"', '"raid0"\nbind = [{from = "a", to = "/b/../etc"}]', "to cannot be '/b/../etc'"),
        ('"raid0"', '"raid0"\nbind = [{from = "a", to = "/b"}, {from = "c", to = "/b"}]', "in two of them"),
        ('"raid0"', '"raid0"\n[[part]]\nsize = "rest"\nrole = "linux"\n#', "cannot have a"),
    ],
)
def test_what_the_schema_cannot_say_is_refused_as_well(before: str, after: str, why: str) -> None:
    text = LEAST.replace(before, after)
    if "[drives]\none" in text:
        text = text.replace("\n[drives]\nselect", "\nselect")
    with pytest.raises(Refused, match=why):
        parsed(text)


@pytest.mark.parametrize("word", ["raid0", "filesystem", "error"])
def test_the_file_says_what_a_single_drive_becomes(word: str) -> None:
    text = f'{LEAST}one = "{word}"\n'
    assert parsed(text).drives.one == word
    jsonschema.validate(tomllib.loads(text), SCHEMA)


SETTINGS = (
    "level=raid10", "name=scratch", "workload=lsm", "chunk=256KiB", "layout=f2", "bitmap=none", "filesystem=ext4",
    "mount_at=/mnt/scratch", "mount_options=noatime", "mount_options=discard", "spare_room=1GiB", "owner=kubelet",
    "group=1000", "mode=2770", 'bind=[{from = "pods", to = "/var/lib/kubelet"}]', "drives.select=instance-store",
    "drives.select=all-unused", 'drives.model=["Amazon*", "nvme_card"]', "drives.by_id=nvme-Amazon_*",
    "drives.pci=0000:0[1-4]:00.0", "drives.size_from=100GiB", "drives.size_to=8TiB", "drives.at_least=2",
    "drives.at_most=16", "drives.none=nothing", "drives.wipe=foreign", 'drives.serials=["S1", "S2"]',
)  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "why", "hint"),
    [
        ('level = "raid0"', "level = 10", "level must be a string, not 10", "did you mean 'raid10'?"),
        ('level = "raid0"', "level = true", "level must be a string, not True", "known: raid0, raid1, raid10, raid5"),
        ('level = "raid0"', "", "level is missing", "known: raid0, raid1, raid10, raid5, raid6"),
        ("[drives]", "lba_size = 4096\n[drives]", "unknown key 'lba_size'", "not in a file of raid ensure, but in one"),
        ("[drives]", "fast_sync = true\n[drives]", "unknown key 'fast_sync'", "not in a file of raid ensure, but in"),
        ("[drives]", 'log_sise = "1MiB"\n[drives]', "unknown key 'log_sise'", "did you mean 'log_size'?"),
    ],
)
def test_an_error_is_answered_with_the_words_that_a_key_has(before: str, after: str, why: str, hint: str) -> None:
    with pytest.raises(Refused) as refused:
        parsed(LEAST.replace(before, after))
    assert why in str(refused.value) and hint in refused.value.hint


def test_settings_are_the_same_as_a_file() -> None:
    assert parse_recipe("--set", text_of_settings("data", SETTINGS)).goal == parsed(FULL)
    least = parse_recipe("--set", text_of_settings("data", ("level=raid0", "drives.select=all-unused"))).goal
    assert least == parsed(LEAST)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("level", "--set level: not KEY=VALUE"),
        ("=raid0", "not KEY=VALUE"),
        ("level =raid0", "not KEY=VALUE"),
        ('x=1\ny="a"', "unknown key 'x'"),
        ("levels=raid0", "unknown key 'levels'"),
        ("level=raid7", "level cannot be 'raid7'"),
        ("kind=raid", "needs no table of drives|unknown key 'drives'"),
        ("drives.at_least=two", "is not valid TOML"),
        ("drives.select=[", "is not valid TOML"),
        ("drives.wipe.x=1", "not KEY=VALUE"),
        ('bind=[{from = "a"}]', "to is missing"),
    ],
)
def test_a_setting_that_is_not_valid_is_refused(setting: str, why: str) -> None:
    words = {"level": "raid0", "drives.select": "all-unused"}
    key = setting.partition("=")[0]
    others = [f"{name}={value}" for name, value in words.items() if name != key]
    with pytest.raises(Refused, match=why):
        parse_recipe("--set", text_of_settings("data", [*others, setting]))


def test_the_command_takes_settings_instead_of_a_file() -> None:
    words = ("--set", "level=raid0", "--set", 'drives.model=["no such drive"]', "--set", "drives.none=nothing")
    done = run_aligntool("raid", "ensure", "data", "--dry-run", *words, code=0)
    assert "no drive is selected, which the file allows" in done.stdout
    assert re.search("drives that are not selected: |no drive was seen", done.stdout)
    refused = run_aligntool("raid", "ensure", "./data.toml", "--dry-run", *words, code=2)
    assert "--set replaces the file" in refused.stderr


def test_a_file_is_checked_and_shown_by_recipes_check(tmp_path: Path) -> None:
    file = tmp_path / "data.toml"
    file.write_text(FULL)
    done = run_aligntool("recipes", "check", file, code=0)
    assert "2 to 16 drives, each: model Amazon* or nvme_card" in done.stdout
    assert "owner kubelet, group 1000, mode 2770" in done.stdout
    assert "its directory pods is also mounted at /var/lib/kubelet" in done.stdout
    assert "may be overwritten: the drives with serial S1, S2" in done.stdout
    assert f"sudo aligntool raid ensure --dry-run {file}" in done.stdout
    check(json.loads(run_aligntool("recipes", "check", "--json", file, code=0).stdout), "recipes")
    refused = run_aligntool("raid", "plan", "--recipe", file, "/dev/null", code=3)
    assert "is a file of raid ensure" in refused.stderr and f"raid ensure {file} --dry-run" in refused.stderr


NEVER = [
    ("raid1", 'chunk = "512KiB"', "RAID1 has no chunk", "omit chunk"),
    ("raid6", 'chunk = "48KiB"', "not a power of two", "omit chunk: the plan recommends one"),
    ("raid5", 'layout = "n2"', "RAID5 of 3 members has no layout 'n2'", "layouts: left-symmetric"),
    ("raid10", 'layout = "n²"', "has no layout", "layouts: n2"),
    ("raid10", 'layout = "n999999999"', "has no layout", "layouts: n2"),
    ("raid5", 'metadata = "1.0"', "unlike those of a RAID5", 'metadata = "1.2"'),
    ("raid0", 'bitmap = "internal"', "so it has no bitmap", ""),
    ("raid1", 'name = "my data"', "not a valid array name", 'name = "data"'),
    ("raid1", 'filesystem = "swap"\nmount_at = "/srv"', "nothing can be mounted", "omit mount_at"),
    ("raid1", 'block_size = "3KiB"', "must be a power of two", "omit block_size"),
]


@pytest.mark.parametrize(("level", "more", "why", "hint"), NEVER)
def test_recipes_check_refuses_what_no_drive_makes_possible(
    tmp_path: Path, level: str, more: str, why: str, hint: str
) -> None:
    """mdadm(8) has no --chunk of a RAID1; raid5.c wants a power of two; mdadm.h has no near layout of a RAID5."""
    file = tmp_path / "data.toml"
    array = f'level = "{level}"\n{more}\n'
    for text in (
        f'format = 1\nkind = "ensure"\n{array}[drives]\nselect = "all-unused"\n',
        f'format = 1\nkind = "raid"\nsummary = "it"\nsource = "me"\n{array}',
    ):
        file.write_text(text)
        done = run_aligntool("recipes", "check", file, code=3)
        assert why in done.stderr and hint in done.stderr and "--" not in done.stderr and done.stdout == ""


def test_recipes_check_shows_how_many_drives_a_level_needs(tmp_path: Path) -> None:
    """md(4): RAID6 has two parities, so mdadm makes none of fewer than four."""
    file = tmp_path / "data.toml"
    text = LEAST.replace("raid0", "raid6")
    file.write_text(f"{text}at_least = 4\nat_most = 4\n")
    shown = run_aligntool("recipes", "check", file, code=0).stdout
    assert "raid6 of new partitions" in shown and "exactly 4 drives" in shown
    file.write_text(f"{text}at_most = 3\n")
    done = run_aligntool("recipes", "check", file, code=3)
    assert "RAID6 needs at least 4 members, and at_most allows 3" in done.stderr
    file.write_text(f'{text}at_most = 3\none = "raid0"\n')
    run_aligntool("recipes", "check", file, code=0)


def test_settings_without_drives_are_answered_with_a_setting() -> None:
    with pytest.raises(Refused) as refused:
        parse_recipe("--set", text_of_settings("data", ["level=raid10"]))
    assert str(refused.value.hint) == "--set drives.select=all-unused"
