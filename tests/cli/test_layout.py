"""`layout`, `plan layout` and `recipes` as a user types them."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aligntool.change import from_json
from aligntool.units import GIB, MIB
from tests.conftest import remove_partitions, run
from tests.run_aligntool import run_aligntool

MakeImage = Callable[..., Path]
RECIPES = Path(__file__).parents[2] / "recipes"


def hashed(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.needs_tools("sfdisk")
def test_a_layout_is_shown_and_made(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    done = run_aligntool("layout", image, "--part", "64MiB:esp:EFI", "--part", "rest:linux", "--yes")
    assert done.returncode == 0, done.stderr
    assert "EFI System" in done.stdout and "1MiB" in done.stdout
    table = json.loads(run("sfdisk", "--json", image))["partitiontable"]
    assert [(one["start"], one["size"]) for one in table["partitions"]] == [(2048, 131072), (133120, 389120)]
    assert run_aligntool("audit", image, "--fail-on", "warning").returncode == 0


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_a_second_run_has_nothing_to_do_unless_it_is_to_wipe(sparse: MakeImage, label: str) -> None:
    image = sparse(64 * MIB)
    wish = ("layout", image, "--table", label, "--part", "16MiB:swap", "--part", "rest:linux", "--json")
    assert run_aligntool(*wish, "--yes").returncode == 0
    before = hashed(image)
    plan = json.loads(run_aligntool(*wish, "--dry-run").stdout)["plan"]
    assert plan["steps"] == [] and [place["before"] == place["after"] for place in plan["places"]] == [True, True]
    again = run_aligntool(*wish)
    assert again.returncode == 0 and json.loads(again.stdout.splitlines()[-1])["changed"] is False
    assert hashed(image) == before
    assert run_aligntool(*wish, "--wipe", image, "--yes").returncode == 0
    assert hashed(image) != before, "the new table has another identifier"


@pytest.mark.needs_tools("sfdisk")
@pytest.mark.parametrize(
    "change", [("--part-type", "1", "L"), ("--part-label", "2", "other"), ("--delete", "2"), ("-N", "2")]
)
def test_a_table_that_differs_in_anything_is_refused_as_before(sparse: MakeImage, change: tuple[str, ...]) -> None:
    image = sparse(64 * MIB)
    wish = ("layout", image, "--part", "16MiB:swap", "--part", "32MiB:linux")
    assert run_aligntool(*wish, "--yes").returncode == 0
    option, *words = change
    run("sfdisk", "-q", option, *(words if option == "-N" else (image, *words)), *((image,) if option == "-N" else ()),
        stdin=",+1MiB\n" if option == "-N" else None)  # fmt: skip
    refused = run_aligntool(*wish, "--dry-run", "--json")
    assert refused.returncode == 3
    assert {one["code"] for one in json.loads(refused.stdout)["refusals"]} == {"not-empty"}


@pytest.mark.on_disk
def test_planning_and_a_dry_run_write_nothing(sparse: MakeImage, tmp_path: Path) -> None:
    image = sparse(64 * MIB)
    wish = ("--part", "rest:linux", "--wipe", image)
    kept = tmp_path / "plan.json"
    planned = run_aligntool("plan", "layout", image, *wish, "-o", kept)
    dry = run_aligntool("layout", image, *wish, "--dry-run")
    assert planned.returncode == dry.returncode == 0, planned.stderr + dry.stderr
    assert not any(image.read_bytes())
    as_json = run_aligntool("plan", "layout", image, *wish, "--json").stdout
    assert kept.read_text() == as_json == run_aligntool("layout", image, *wish, "--dry-run", "--json").stdout
    assert from_json(as_json).purpose == "layout"
    assert planned.stdout.endswith(f"\n→ aligntool apply {kept}\n")


def test_what_a_plan_says_to_type_next_is_the_same_wish(sparse: MakeImage) -> None:
    image = sparse(256 * MIB)
    wish = ["--part", "64MiB:linux:my root", "--table", "gpt", "--grain", "2MiB", "--spare-end", "8MiB"]
    wish += ["--sector-size", "4KiB", "--wipe", str(image)]
    planned = run_aligntool("plan", "layout", image, *wish)
    line = next(line for line in planned.stdout.splitlines() if line.startswith("→ "))
    assert line.endswith(
        f"--part '64MiB:linux:my root' --table gpt --grain 2MiB --spare-end 8MiB --sector-size 4KiB --wipe {image}"
    )


def test_without_a_terminal_and_without_yes_nobody_is_asked_and_nothing_written(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    done = run_aligntool("layout", image, "--part", "rest:linux")
    assert done.returncode == 3 and "--yes" in done.stderr
    assert not any(image.read_bytes())


@pytest.mark.needs_tools("mkfs.ext4")
def test_yes_overrides_no_refusal(sparse: MakeImage) -> None:
    image = sparse(64 * MIB)
    run("mkfs.ext4", "-q", "-F", "-L", "photos", image)
    before = hashed(image)
    done = run_aligntool("layout", image, "--part", "rest:linux", "--yes")
    assert done.returncode == 3
    assert 'ext4 "photos" on the whole disk' in done.stderr and "--wipe" not in done.stderr
    assert hashed(image) == before
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
def test_a_wish_that_cannot_be_is_refused_in_words(
    sparse: MakeImage, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run_aligntool("layout", sparse(64 * MIB), *words, "--yes", env={"COLUMNS": "200"})
    assert done.returncode == code and said in done.stderr, done.stderr


def test_a_recipe_and_what_is_typed_beside_it(sparse: MakeImage) -> None:
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


def test_a_plan_that_was_kept_is_applied_once(sparse: MakeImage, tmp_path: Path) -> None:
    image = sparse(64 * MIB)
    kept = tmp_path / "plan.json"
    assert run_aligntool("plan", "layout", image, "--part", "rest:linux", "-o", kept).returncode == 0
    assert run_aligntool("apply", kept, "--yes").returncode == 0
    before = hashed(image)
    again = run_aligntool("apply", kept, "--yes")
    assert again.returncode == 3 and "not the disk" in again.stderr
    assert hashed(image) == before


@pytest.mark.needs_root
@pytest.mark.needs_tools("losetup", "partx")
def test_a_partition_is_no_disk_to_make_a_table_for(sparse: MakeImage, loop: Callable[..., Path]) -> None:
    image = sparse(64 * MIB)
    device = loop(image)
    assert run_aligntool("layout", device, "--part", "rest:linux", "--yes").returncode == 0
    try:
        before = hashed(image)
        for target in (f"{device}p1", f"{device.name}p1"):
            done = run_aligntool("layout", target, "--part", "rest:swap", "--yes", "--wipe", target)
            assert done.returncode == 3 and f"give {device}" in done.stderr, done.stderr
        assert hashed(image) == before
        assert (
            run_aligntool("layout", device.name, "--part", "rest:swap", "--dry-run", "--wipe", device.name).returncode
            == 0
        )
    finally:
        remove_partitions(device)
