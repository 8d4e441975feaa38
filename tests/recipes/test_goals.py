"""Recipes that are goals: all of them load and make their golden plans, and a typing error is refused."""

from pathlib import Path

import pytest

from aligntool.change import LayoutGoal, PartitionRequest, RealignGoal, to_json
from aligntool.errors import Refused
from aligntool.formats.part_types import ROLES
from aligntool.recipes.goals import Recipe, load_recipes, parse_part, parse_recipe, recipe
from aligntool.steps import MakeTable
from aligntool.units import GIB, MIB
from tests.recipes.golden_plans import DISKS, GOLDEN, RECIPES, RENEW, goal_of, golden_file, golden_plan, key

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("each", RECIPES, ids=key)
def test_every_recipe_gives_its_golden_plan(each: Recipe) -> None:
    plan, _ = golden_plan(each)
    assert golden_file(each).read_text() == to_json(plan) + "\n", RENEW


@pytest.mark.parametrize("each", RECIPES, ids=key)
def test_every_start_in_a_golden_plan_is_on_the_grain_and_on_the_grids(each: Recipe) -> None:
    plan, judged = golden_plan(each)
    goal = goal_of(each)
    assert plan.places and plan.steps
    for place in plan.places:
        assert place.after.start % goal.grain == 0
        assert all(grid.off_by(place.after.start) == 0 for grid in judged.grids if grid.severity != "info")
    if isinstance(goal, RealignGoal):
        assert all(place.after.start >= goal.least_start for place in plan.places)
        assert any(place.before != place.after for place in plan.places)
    else:
        (step,) = plan.steps
        assert isinstance(step, MakeTable) and len(step.entries) == len(goal.parts)


def test_recipes_sample_disks_and_golden_plans_correspond() -> None:
    keys = {key(each) for each in RECIPES}
    assert keys == set(DISKS)
    assert keys == {str(path.relative_to(GOLDEN).with_suffix("")) for path in GOLDEN.rglob("*.json")}
    on_disk = {path for folder in ("realign", "layouts") for path in (ROOT / "recipes" / folder).glob("*.toml")}
    assert keys == {str(path.relative_to(ROOT / "recipes").with_suffix("")) for path in on_disk}


def test_every_recipe_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    assert not [each.name for each in load_recipes() if f"`{each.name}`" not in page]


def test_a_recipe_is_found_by_its_name_and_if_ambiguous_by_its_kind() -> None:
    assert recipe("desktop-uefi").kind == "layout"
    assert recipe("sd-card").kind == recipe("sd-card", "realign").kind == "realign"
    assert recipe("sd-card", "layout").kind == "layout"
    with pytest.raises(Refused, match="no recipe 'desktop-uefy'") as refused:
        recipe("desktop-uefy")
    assert refused.value.hint == "aligntool recipes show desktop-uefi"
    with pytest.raises(Refused, match="the recipe desktop-uefi is for a layout"):
        recipe("desktop-uefi", "realign")


LAYOUT = """
format = 1
kind = "layout"
summary = "one of each"
label = "dos"
grain = "4MiB"
spare_end = "1GiB"
source = "made up"

[[part]]
size = "512MiB"
role = "esp"
name = "EFI"

[[part]]
size = "rest"
role = "linux"
"""
REALIGN = """
format = 1
kind = "realign"
summary = "cards"
grain = "4MiB"
least_start = "8MiB"
note = "be careful"
source = "made up"
"""


def test_the_recipes_used_for_the_errors_are_valid_themselves() -> None:
    assert parse_recipe("dir/one.toml", LAYOUT) == Recipe(
        "one", "dir/one.toml", "one of each", None, "made up",
        LayoutGoal((PartitionRequest(512 * MIB, "esp", "EFI"), PartitionRequest(None, "linux")), "dos", 4 * MIB, GIB),
    )  # fmt: skip
    assert parse_recipe("two.toml", REALIGN).goal == RealignGoal(grain=4 * MIB, grain_given=True, least_start=8 * MIB)
    free = parse_recipe("two.toml", REALIGN.replace('grain = "4MiB"', "")).goal
    assert isinstance(free, RealignGoal) and free.grain == MIB and not free.grain_given


@pytest.mark.parametrize(
    ("content", "before", "after", "complaint", "hint"),
    [
        (LAYOUT, "format = 1", "format = 2", "format is 2", "format = 1"),
        (LAYOUT, "format = 1", "", "format is missing", "format = 1"),
        (LAYOUT, 'kind = "layout"', 'kind = "xyz"', "kind cannot be 'xyz'", "bench, ensure, layout, raid, realign"),
        (LAYOUT, 'kind = "layout"', "", "kind is missing", ""),
        (LAYOUT, 'kind = "layout"', 'kind = "realign"', "unknown key 'label'", ""),
        (REALIGN, 'kind = "realign"', 'kind = "layout"', "unknown key 'least_start'", ""),
        (REALIGN, 'note = "be careful"', '[[part]]\nsize = "rest"\nrole = "linux"', "cannot have a [[part]]", "layout"),
        (REALIGN, "least_start", "device", "unknown key 'device'", ""),
        (LAYOUT, "spare_end", "spare_ned", "unknown key 'spare_ned'", "did you mean 'spare_end'?"),
        (LAYOUT, "name", "nmae", "unknown key 'nmae'", "did you mean 'name'?"),
        (LAYOUT, 'summary = "one of each"', "", "summary is missing", ""),
        (LAYOUT, 'source = "made up"', "", "source is missing", ""),
        (LAYOUT, 'label = "dos"', 'label = "mbr"', "label cannot be 'mbr'", ""),
        (LAYOUT, '"4MiB"', '"3MiB"', "grain must be a power of two", "1MiB"),
        (LAYOUT, '"4MiB"', '"512B"', "grain must be a power of two", "1MiB"),
        (LAYOUT, '"4MiB"', "4194304", "grain must be a string", ""),
        (LAYOUT, '"512MiB"', '"512MB"', "'512MB' is not a size", ""),
        (LAYOUT, '"512MiB"', '"0"', "needs a size", ""),
        (LAYOUT, '"512MiB"', '"rest"', "only one partition can take the rest", ""),
        (LAYOUT, 'role = "linux"', 'role = "linus"', "role cannot be 'linus'", "did you mean 'linux'?"),
        (LAYOUT, 'role = "linux"', "", "role is missing", ""),
        (LAYOUT, 'size = "rest"', "", "size is missing", ""),
        (REALIGN, '"8MiB"', '"9MiB"', "multiple of the grain", ""),
    ],
)
def test_an_error_in_a_recipe_is_refused_by_file_and_key(
    content: str, before: str, after: str, complaint: str, hint: str
) -> None:
    assert before in content
    with pytest.raises(Refused) as refused:
        parse_recipe("my.toml", content.replace(before, after, 1))
    assert str(refused.value).startswith("my.toml")
    assert complaint in str(refused.value)
    assert any(hint in each.hint for each in refused.value.refusals)


def test_each_of_several_errors_is_followed_by_its_own_hint() -> None:
    errors = LAYOUT.replace("spare_end", "spare_ned").replace('role = "linux"', 'role = "linus"')
    with pytest.raises(Refused) as refused:
        parse_recipe("my.toml", errors)
    said = str(refused.value).split("\n")
    assert len(said) == 2 and refused.value.hint == ""
    assert said[0].endswith("unknown key 'spare_ned' (did you mean 'spare_end'?)")
    assert said[1].endswith("role cannot be 'linus' (did you mean 'linux'?)")
    assert all(each.hint.startswith("did you mean") for each in refused.value.refusals)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [("[" * 5000 + "]" * 5000, "is not valid TOML"), ("9" * 5000, "is not valid TOML"), ("9" * 4000, "format is 999")],
    ids=["nested", "too many digits", "many digits"],
)
def test_a_value_that_python_does_not_parse_is_refused(value: str, complaint: str) -> None:
    with pytest.raises(Refused, match=complaint):
        parse_recipe("my.toml", LAYOUT.replace("format = 1", f"format = {value}"))


def test_combinations_of_long_lists_are_refused_before_they_are_generated() -> None:
    words = "format = 1\nkind = 'bench'\nsummary = 's'\nsource = 's'\n[[test]]\naccess = 'random'\n"
    lists = "block = [" + '"4KiB", ' * 20_000 + "]\ndepth = [" + "1, " * 20_000 + "]\n"
    with pytest.raises(Refused, match="there are 400000000 tests, but at most 200 are allowed"):
        parse_recipe("my.toml", words + lists)


def test_a_layout_without_partitions_is_refused() -> None:
    with pytest.raises(Refused, match="a layout needs partitions"):
        parse_recipe("my.toml", LAYOUT.partition("[[part]]")[0])


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("512MiB:esp", PartitionRequest(512 * MIB, "esp")),
        ("rest:linux-raid", PartitionRequest(None, "linux-raid")),
        ("1GiB:linux:my root", PartitionRequest(GIB, "linux", "my root")),
        ("4096:swap:a:b", PartitionRequest(4096, "swap", "a:b")),
    ],
)
def test_a_partition_request_is_size_role_and_name(text: str, wish: PartitionRequest) -> None:
    assert parse_part(text) == wish


@pytest.mark.parametrize("text", ["", "512MiB", "esp", "esp:512MiB", "1G:linux", "0:linux", ":linux", "1GiB:efi"])
def test_an_invalid_partition_request_is_refused_with_the_format(text: str) -> None:
    with pytest.raises(ValueError, match=r"SIZE:ROLE|not a size|needs a size"):
        parse_part(text)


def test_every_role_is_documented_with_its_types() -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    for role in ROLES.values():
        mbr = f"`{role.mbr}`" if role.mbr else "–"
        assert f"| `{role.word}` | {role.title} | `{role.gpt}` | {mbr}" in page


def test_all_errors_in_a_recipe_are_reported_together() -> None:
    text = """
        format = 1
        kind = "layout"
        sumary = "x"
        grain = "3KiB"
        label = "mbr"
        [[part]]
        size = "12M"
        role = "lnux"
        nam = "x"
        [[part]]
        role = 3
    """
    with pytest.raises(Refused) as refused:
        parse_recipe("my.toml", text)
    reasons = [reason.text.removeprefix("my.toml, ") for reason in refused.value.refusals]
    assert [reason.split(": ", 1)[1].split(" ")[0] for reason in reasons if reason.startswith("at its top")] == [
        "unknown", "label", "grain", "summary", "source",
    ]  # fmt: skip
    assert [reason for reason in reasons if reason.startswith("part")] == [
        "part 1: size: '12M' is not a size; write it in binary units, like 512B, 4KiB or 1MiB",
        "part 1: role cannot be 'lnux'", "part 1: unknown key 'nam'",
        "part 2: size is missing", "part 2: role must be a string, not 3",
    ]  # fmt: skip


def test_all_errors_of_an_array_and_of_a_benchmark_are_reported_together() -> None:
    head = 'format = 1\nsummary = "s"\nsource = "s"\n'
    for text, keys in (
        ('kind = "raid"\nlevl = 5\nchunk = "1M"\nfs = "fat"\n', ("levl", "level", "chunk", "fs")),
        ('kind = "bench"\nsize = "1M"\nrepeats = 0\n[[test]]\naccess = "no"\ndepth = 0\n', ("size", "repeats", "access",
         "block", "depth")),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            parse_recipe("my.toml", head + text)
        assert all(any(key in reason.text for reason in refused.value.refusals) for key in keys), str(refused.value)
        assert len(refused.value.refusals) == len(keys), str(refused.value)


def test_a_missing_format_is_reported_together_with_every_other_error() -> None:
    with pytest.raises(Refused) as refused:
        parse_recipe("mine.toml", 'kind = "realign"\ngrain = "3KiB"\nleast_start = "x"\nfoo = 1\n')
    said = str(refused.value)
    for words in ("format is missing", "unknown key 'foo'", "grain must be", "least_start: 'x' is not a size"):
        assert words in said, words
