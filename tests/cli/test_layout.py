"""`layout`, `plan layout` and `recipes` as a user types them."""

import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aligntool.change import from_json
from aligntool.cli.app import app
from aligntool.errors import Refused
from aligntool.units import GIB, MIB, Extent
from tests.conftest import digest, is_blank, run
from tests.run_aligntool import run_aligntool

MakeImage = Callable[..., Path]
RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.needs_tools("sfdisk")
def test_a_layout_is_shown_and_created(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    done = run_aligntool("layout", image, "--part", "64MiB:esp:EFI", "--part", "rest:linux", "--yes")
    assert done.returncode == 0, done.stderr
    assert "EFI System" in done.stdout and "1MiB" in done.stdout
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    assert [(one["start"], one["size"]) for one in table["partitions"]] == [(2048, 131072), (133120, 389120)]
    assert run_aligntool("audit", image, "--fail-on", "warning").returncode == 0


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_second_run_has_nothing_to_do_without_wipe(sparse: MakeImage, label: str) -> None:
    image = sparse(64 * MIB)
    wish = ("layout", image, "--table", label, "--part", "16MiB:swap", "--part", "rest:linux", "--json")
    assert run_aligntool(*wish, "--yes").returncode == 0
    before = digest(image)
    plan = json.loads(run_aligntool(*wish, "--dry-run").stdout)["plan"]
    assert plan["steps"] == [] and [place["before"] == place["after"] for place in plan["places"]] == [True, True]
    again = run_aligntool(*wish)
    assert again.returncode == 0 and json.loads(again.stdout.splitlines()[-1])["changed"] is False
    assert digest(image) == before
    assert run_aligntool(*wish, "--wipe", image, "--yes").returncode == 0
    assert digest(image) != before, "the new table has another identifier"


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(
    "change", [("--part-type", "1", "L"), ("--part-label", "2", "other"), ("--delete", "2"), ("-N", "2")]
)
def test_a_table_that_differs_from_the_request_is_refused(sparse: MakeImage, change: tuple[str, ...]) -> None:
    image = sparse(64 * MIB)
    wish = ("layout", image, "--part", "16MiB:swap", "--part", "32MiB:linux")
    assert run_aligntool(*wish, "--yes").returncode == 0
    option, *words = change
    run("sfdisk", "-q", option, *(words if option == "-N" else (image, *words)), *((image,) if option == "-N" else ()),
        stdin=",+1MiB\n" if option == "-N" else None)  # fmt: skip
    refused = run_aligntool(*wish, "--dry-run", "--json")
    assert refused.returncode == 3
    assert {one["code"] for one in json.loads(refused.stdout)["refusals"]} == {"not-empty"}


@pytest.mark.needs_root
@pytest.mark.parametrize("at", [4096, 64 * MIB - 8192])
def test_a_table_overwrites_unrecognised_data_only_if_the_disk_is_named(
    sparse: MakeImage, loop: Callable[..., Path], at: int
) -> None:
    image = sparse(64 * MIB)
    device = loop(image)
    with image.open("r+b") as raw:
        for place in (at, 32 * MIB):
            raw.seek(place)
            raw.write(os.urandom(4096))
    before = digest(image)
    wish = ("layout", device, "--part", "rest:linux", "--yes")
    refused = run_aligntool(*wish, code=3)
    assert "is not empty: unrecognised data" in refused.stderr and f"--wipe {device}" in refused.stderr
    assert digest(image) == before
    run_aligntool(*wish, "--wipe", device, code=0)


def test_data_in_the_middle_that_a_wipe_overwrites_are_named(sparse: MakeImage) -> None:
    """A table alone would leave them, so they are no reason to refuse it."""
    image = sparse(64 * MIB)
    with image.open("r+b") as raw:
        raw.seek(3 * MIB)
        raw.write(os.urandom(2 * MIB))
    wish = ("plan", "layout", image, "--part", "rest:linux", "--wipe", image)
    said = run_aligntool(*wish, code=0).stdout
    assert "lost: unrecognised data at" in said and "zeroed first" not in said
    assert "zeroed first, so that no old signature reappears: bytes 0.." in run_aligntool(*wish, "-v").stdout


@pytest.mark.needs_tools("sfdisk", "mke2fs")
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_deleted_partitions_are_reported_before_their_content_is_lost(sparse: MakeImage, label: str) -> None:
    """Only the table is empty then, and the new partitions are zeroed where the file systems were."""
    image = sparse(64 * MIB)
    run("sfdisk", "-q", image, stdin=f"label: {label}\nstart=2048, size=40960\n")
    wish = ("layout", image, "--table", label, "--part", "rest:linux")
    run("sfdisk", "-q", "--delete", image)
    shown = run_aligntool(*wish, code=3)
    assert "unrecognised data" not in shown.stderr and "overwrites the empty table" in shown.stderr
    run("mke2fs", "-q", "-F", "-t", "ext4", "-E", f"offset={MIB}", image, "20m")
    refused = run_aligntool(*wish, code=3)
    assert "unrecognised data at" in refused.stderr and f"if it is not needed, add: --wipe {image}" in refused.stderr
    assert "empty table" not in refused.stderr
    plan = run_aligntool(*wish, "--wipe", image, "--dry-run", code=0)
    assert "lost: unrecognised data at" in plan.stdout
    assert run_aligntool(*wish, "--wipe", image, "--yes").returncode == 0


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize("size", [1024, 3584])
def test_an_image_shorter_than_a_4096_byte_sector_is_too_small(sparse: MakeImage, size: int) -> None:
    """The last sector of 4096 bytes would be before its start."""
    image = sparse(size)
    run("sfdisk", "-q", image, stdin="label: dos\n")
    assert "too small by 1MiB" in run_aligntool("layout", image, "--part", "rest:linux", "--wipe", image, code=3).stderr


@pytest.mark.on_disk
def test_planning_and_a_dry_run_write_nothing(sparse: MakeImage, tmp_path: Path) -> None:
    image = sparse(64 * MIB)
    wish = ("--part", "rest:linux", "--wipe", image)
    kept = tmp_path / "plan.json"
    planned = run_aligntool("plan", "layout", image, *wish, "-o", kept)
    dry = run_aligntool("layout", image, *wish, "--dry-run")
    assert planned.returncode == dry.returncode == 0, planned.stderr + dry.stderr
    assert is_blank(image)
    as_json = run_aligntool("plan", "layout", image, *wish, "--json").stdout
    assert kept.read_text() == as_json == run_aligntool("layout", image, *wish, "--dry-run", "--json").stdout
    assert from_json(as_json).purpose == "layout"
    assert planned.stdout.endswith(f"\n→ aligntool apply {kept}\n")


def test_the_command_that_a_plan_suggests_repeats_the_request(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    wish = ["--part", "64MiB:linux:my root", "--table", "gpt", "--grain", "2MiB", "--spare-end", "8MiB"]
    wish += ["--sector-size", "4KiB", "--wipe", str(image)]
    planned = run_aligntool("plan", "layout", image, *wish)
    line = next(line for line in planned.stdout.splitlines() if line.startswith("→ "))
    assert line.endswith(
        f"--part '64MiB:linux:my root' --table gpt --grain 2MiB --spare-end 8MiB --sector-size 4KiB --wipe {image}"
    )


def test_without_a_terminal_and_without_yes_nothing_is_written(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    done = run_aligntool("layout", image, "--part", "rest:linux")
    assert done.returncode == 3 and "--yes" in done.stderr
    assert is_blank(image)


@pytest.mark.needs_tools("mkfs.ext4")
def test_yes_overrides_no_refusal(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    run("mkfs.ext4", "-q", "-F", "-L", "photos", image)
    before = digest(image)
    done = run_aligntool("layout", image, "--part", "rest:linux", "--yes")
    assert done.returncode == 3
    assert 'ext4 "photos" on the whole disk' in done.stderr and "--wipe" not in done.stderr
    assert digest(image) == before
    wiped = run_aligntool("layout", image, "--part", "rest:linux", "--yes", "--wipe", image)
    assert wiped.returncode == 0 and 'lost: ext4 "photos" on the whole disk' in wiped.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--part", "5GB:linux"), 2, "is not a size"),
        (("--part", "5GiB:efi"), 2, "roles: esp"),
        (("--part", "5GiB:linux"), 3, "too small by"),
        ((), 3, "needs partitions"),
        (("--recipe", "data-disc"), 3, "aligntool recipes show data-disk"),
        (("--recipe", "data-disk", "--part", "rest:linux"), 3, "already has partitions"),
        (("--recipe", "sector-63"), 3, "the recipe sector-63 is for a realign"),
        (("--part", "rest:linux", "--table", "mbr"), 2, "gpt, dos"),
    ],
)
def test_an_impossible_request_is_refused_with_the_reason(
    sparse: MakeImage, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run_aligntool("layout", sparse(64 * MIB), *words, "--yes", env={"COLUMNS": "200"})
    assert done.returncode == code and said in done.stderr, done.stderr


def test_options_override_the_values_of_a_recipe(sparse: MakeImage) -> None:
    image = sparse(4 * GIB)
    done = run_aligntool(
        "plan", "layout", image, "--recipe", "data-disk", "--table", "dos", "--grain", "8MiB", "--json"
    )
    plan = from_json(done.stdout)
    assert plan.steps[0].label == "dos"  # type: ignore[union-attr]
    assert plan.places[0].after.start == 8 * MIB


def test_recipes_are_listed_shown_and_checked(tmp_path: Path) -> None:
    listed = json.loads(run_aligntool("recipes", "list", "--json").stdout)
    kinds = ("realign", "layouts", "raid", "bench")
    files = {f"recipes/{kind}/{each.name}" for kind in kinds for each in (RECIPES / kind).glob("*.toml")}
    assert {each["file"] for each in listed} == files
    text = run_aligntool("recipes", "list").stdout
    assert all(each["name"] in text for each in listed)
    assert "8GiB: swap" in run_aligntool("recipes", "show", "desktop-uefi").stdout
    both = run_aligntool("recipes", "show", "sd-card").stdout
    assert "aligntool realign DISK --recipe sd-card" in both and "aligntool layout DISK --recipe sd-card" in both
    own = tmp_path / "own.toml"
    own.write_text('format = 1\nkind = "realign"\nsummary = "s"\nsource = "me"\ngrain = "64KiB"\n')
    good = run_aligntool("recipes", "check", own)
    assert good.returncode == 0 and "every start on 64KiB" in good.stdout
    own.write_text(own.read_text().replace("grain", "grian"))
    bad = run_aligntool("recipes", "check", own)
    assert bad.returncode == 3 and "did you mean 'grain'?" in bad.stderr
    assert run_aligntool("recipes", "check", tmp_path).returncode == 3


OWN_LAYOUT = """
format = 1
kind = "layout"
summary = "a small and a large partition"
source = "me"

[[part]]
size = "16MiB"
role = "swap"

[[part]]
size = "rest"
role = "linux"
"""
OWN_REALIGN = 'format = 1\nkind = "realign"\nsummary = "on 4 MiB"\nsource = "me"\ngrain = "4MiB"\n'


@pytest.mark.parametrize("name", ["my.toml", "two words.toml", "mine"])
def test_a_checked_recipe_is_used_by_the_command_that_the_check_prints(
    sparse: MakeImage, tmp_path: Path, name: str
) -> None:
    """`mine` is printed as `./mine`: without a slash it would be the name of a recipe."""
    image = sparse(64 * MIB)
    (tmp_path / name).write_text(OWN_LAYOUT)
    checked = run_aligntool("recipes", "check", name, cwd=tmp_path, code=0)
    (printed,) = re.findall(r"→ aligntool (layout DISK .*)", checked.stdout)
    words = [str(image) if word == "DISK" else word for word in shlex.split(printed)]
    planned = run_aligntool(*words, "--dry-run", "--json", cwd=tmp_path, code=0)
    assert [place.after for place in from_json(planned.stdout).places] == [
        Extent(MIB, 16 * MIB), Extent(17 * MIB, 46 * MIB)
    ]  # fmt: skip
    assert is_blank(image)


def test_a_recipe_of_the_user_is_accepted_by_a_realign(tmp_path: Path) -> None:
    image, own = tmp_path / "old.img", tmp_path / "my.toml"
    run_aligntool("demo", image, code=0)
    own.write_text(OWN_REALIGN)
    run_aligntool("recipes", "check", own, code=0)

    def places(*options: str | Path) -> list[tuple[int, int]]:
        plan = from_json(run_aligntool("plan", "realign", image, *options, "--json", code=0).stdout)
        return [(place.number, place.after.start) for place in plan.places]

    assert places("--recipe", own) == places("--grain", "4MiB") != places()


@pytest.mark.parametrize(
    ("command", "content", "kind"),
    [
        (("layout", "disk.img", "--dry-run"), OWN_REALIGN, "realign"),
        (("plan", "layout", "disk.img"), OWN_REALIGN, "realign"),
        (("plan", "realign", "disk.img"), OWN_LAYOUT, "layout"),
        (("realign", "disk.img", "--dry-run"), OWN_LAYOUT, "layout"),
        (("raid", "plan", "disk.img"), OWN_LAYOUT, "layout"),
    ],
)
def test_a_recipe_of_the_user_for_another_purpose_is_refused(
    sparse: MakeImage, tmp_path: Path, command: tuple[str, ...], content: str, kind: str
) -> None:
    sparse(64 * MIB).rename(tmp_path / "disk.img")
    (tmp_path / "my.toml").write_text(content)
    refused = run_aligntool(*command, "--recipe", "my.toml", cwd=tmp_path, code=3)
    assert f"my.toml is a recipe for a {kind}" in refused.stderr
    assert "→ aligntool recipes list" in refused.stderr


def test_a_name_that_libparted_cannot_open_is_refused(sparse: MakeImage, tmp_path: Path) -> None:
    image = tmp_path / os.fsdecode(b"d\xff.img")
    sparse(64 * MIB).rename(image)
    before = digest(image)
    done = run_aligntool("layout", image, "--part", "rest:linux", "--yes", code=3)
    assert "not valid UTF-8" in done.stderr and digest(image) == before


@pytest.mark.parametrize(
    "words", [("plan", "layout"), ("layout", "--dry-run"), ("layout", "--dry-run", "--json"), ("layout", "--yes")]
)
def test_a_plan_reports_a_missing_libparted_as_the_run_does(
    sparse: MakeImage, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    """`layout --dry-run --json` is the check mode of Ansible's module."""
    image = sparse(64 * MIB)
    monkeypatch.setitem(sys.modules, "parted", None)
    done = CliRunner().invoke(app, [*words, str(image), "--part", "rest:linux"])
    assert isinstance(done.exception, Refused) and done.exception.hint.startswith("install the package python3-parted")
    assert [refusal.code for refusal in done.exception.refusals] == ["not-installed"]
    if "--json" in words:
        end = json.loads(done.output)
        assert (end["state"], [refusal["code"] for refusal in end["refusals"]]) == ("refused", ["not-installed"])
    assert is_blank(image)


def test_a_saved_plan_is_applied_once(sparse: MakeImage, tmp_path: Path) -> None:
    image = sparse(64 * MIB)
    kept = tmp_path / "plan.json"
    assert run_aligntool("plan", "layout", image, "--part", "rest:linux", "-o", kept).returncode == 0
    assert run_aligntool("apply", kept, "--yes").returncode == 0
    before = digest(image)
    again = run_aligntool("apply", kept, "--yes")
    assert again.returncode == 3 and "not the disk" in again.stderr
    assert digest(image) == before


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("steps", 0, "label"), "sun"),
        (("steps", 0, "entries", 0, "number"), 3),
        (("steps", 0, "entries", 0, "type_code"), "x"),
        (("steps", 0, "entries", 0, "type_code"), "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"),
        (("steps", 0, "entries", 0, "name"), "n" * 37),
        (("steps", 0, "entries", 0, "active"), True),
        (("steps", 0, "entries", 0, "extent", "start"), 10**30),
        (("steps", 0, "entries", 0, "extent", "length"), 8 * MIB),
        (("places", 0, "after", "start"), -1),
        (("places", 0, "what"), "another"),
        (("places",), []),
        (("disk", "size"), -1),
        (("disk", "sector_size"), 3),
    ],
)
def test_a_saved_plan_that_does_not_make_the_table_that_it_shows_is_refused(
    sparse: MakeImage, tmp_path: Path, where: tuple[str | int, ...], value: object
) -> None:
    """The digest of a made-up plan is valid. It must give no traceback, write nothing, and never another table."""
    image = sparse(64 * MIB)
    kept = tmp_path / "plan.json"
    assert run_aligntool("plan", "layout", image, "--part", "rest:linux", "-o", kept).returncode == 0
    document = json.loads(kept.read_text())
    part = document["plan"]
    for key in where[:-1]:
        part = part[key]
    part[where[-1]] = value
    document["digest"] = hashlib.sha256(json.dumps(document["plan"], sort_keys=True).encode()).hexdigest()
    kept.write_text(json.dumps(document))
    before = digest(image)
    done = run_aligntool("apply", kept, "--yes")
    assert done.returncode == 3 and digest(image) == before, done.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
def test_a_partition_is_refused_as_the_target_of_a_new_table(sparse: MakeImage, loop: Callable[..., Path]) -> None:
    image = sparse(64 * MIB)
    device = loop(image)
    assert run_aligntool("layout", device, "--part", "rest:linux", "--yes").returncode == 0
    before = digest(image)
    for target in (f"{device}p1", f"{device.name}p1"):
        done = run_aligntool("layout", target, "--part", "rest:swap", "--yes", "--wipe", target)
        assert done.returncode == 3 and f"give {device}" in done.stderr, done.stderr
    assert digest(image) == before
    assert (
        run_aligntool("layout", device.name, "--part", "rest:swap", "--dry-run", "--wipe", device.name).returncode == 0
    )
