"""A plan as text: everything that will be changed is listed, to the byte, in 80 columns."""

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aligntool.change import (
    STEPS,
    Place,
    Plan,
    Progress,
    Said,
    StepBegun,
    StepDone,
    Waiting,
    digest,
    to_json,
    what_stays_shrunk,
)
from aligntool.inventory import Sampled
from aligntool.mover.status import Status
from aligntool.render.disk_map import plan_map_lines
from aligntool.render.lines import cell_width, command_lines, text_of
from aligntool.render.plan import distance_words, plan_lines, raid_plan_lines, sector_words, step_title
from aligntool.render.progress import (
    Left,
    Pace,
    about_ways,
    end_json,
    event_json,
    plan_event_json,
    progress_bar,
    progress_json,
    progress_lines,
    resync_progress,
    status_json,
    status_lines,
)
from aligntool.steps import CopyContent, ParkEntries, ShrinkContent, WriteJournal
from aligntool.units import MIB, Extent, time_words
from tests.raid.builders import drive, goal, planned
from tests.render.sample_plans import CONVERT, DIRECTORIES, FORMAT, JOURNAL, LAYOUT, NEW, OLD, PLAN, REFORMAT, SIZE
from tests.schemas import check
from tests.thorough import examples

HOSTILE = "\x1b]0;owned\x07\x1b[31m[red]bold[/red]\r\n\u202eevil\x9b2J\udcff"


def text(plan: Plan, *, width: int = 80, verbose: bool = True) -> str:
    return "".join(text_of(plan_lines(plan, width=width, verbose=verbose)))


def test_a_short_plan_has_a_line_for_each_step_or_for_several_of_a_kind() -> None:
    said = text(PLAN, verbose=False)
    shown = re.findall(r"^ *(\d+)(?:–(\d+))?\. ", said, re.MULTILINE)
    numbers = [number for first, last in shown for number in range(int(first), int(last or first) + 1)]
    assert numbers == list(range(1, len(PLAN.steps) + 1))
    assert "-v: every byte range" in said
    steps = said[said.index("Steps") : said.index("Decided")]
    assert not re.search(r"\d\.\.\d", steps)
    copied = [step for step in PLAN.steps if isinstance(step, CopyContent)]
    assert copied and all(f"copy partition {step.partition}: " in steps for step in copied)
    assert len(said.splitlines()) < len(text(PLAN).splitlines())


def test_a_plan_shows_every_start_distance_and_changed_field() -> None:
    said = text(PLAN, width=100)
    for words in ("63", "31.50KiB", "2048", "1MiB", "up by 992.5KiB", "off 4KiB by 3584B", "stays",
                  "12345678B", "2 min", "partclone.ntfs", "NTFS hidden sectors", "63 → 2048",
                  "bootrec /rebuildbcd", "partition 2 is on the grid and stays", "0x2005c0de"):  # fmt: skip
        assert words in said, words


def test_every_written_byte_range_is_shown_relative_to_the_start_of_the_disk() -> None:
    said = text(PLAN).replace("\n", " ")
    ranges = {(int(a), int(b)) for a, b in re.findall(r"(\d+)\.\.(\d+)", said)}
    head, tail = (0, 131072), (400 * MIB - 131072, 400 * MIB)
    for start in (OLD.start, NEW.start):
        for first, end in (head, tail):
            assert (start + first, start + end) in ranges
    assert {(OLD.start, OLD.end), (NEW.start, NEW.end)} <= ranges
    at, copy = JOURNAL.extent.start, JOURNAL.copy_length
    assert {(at, at + copy), (at + copy, at + 2 * copy), (at + 2 * copy, JOURNAL.extent.end)} <= ranges
    assert (NEW.start + 28, NEW.start + 32) in ranges, "the NTFS field, where it will lie"


def test_commands_are_shown_below_the_step_that_runs_them() -> None:
    said = "".join(text_of(plan_lines(PLAN, width=80, commands={0: ("ntfsfix -n /dev/loop9",)}, verbose=True)))
    check, shrink = said.index("check partition 1"), said.index("shrink ext3")
    assert check < said.index("$ ntfsfix -n /dev/loop9") < shrink


def test_a_new_layout_is_shown_with_its_types_and_the_wiped_ranges() -> None:
    said = text(LAYOUT)
    assert "C12A7328-F81F-11D2-BA4B-00A0C93EC93B" in said
    assert "signatures" in said and "2048" in said and "S3R1AL" in said


def test_a_plan_without_steps_reports_nothing_to_do() -> None:
    done = replace(PLAN, steps=(), places=PLAN.places[1:3])
    said = "".join(text_of(plan_lines(done, width=80, type_next="aligntool realign x")))
    assert "Nothing to do." in said
    assert "aligntool realign x" not in said and "Steps" not in said


@pytest.mark.parametrize("width", [60, 80, 100, 160])
@pytest.mark.parametrize("plan", [PLAN, LAYOUT], ids=["realign", "layout"])
@pytest.mark.parametrize("verbose", [False, True])
def test_no_line_is_wider_than_the_terminal(plan: Plan, width: int, verbose: bool) -> None:
    lines = text(plan, width=width, verbose=verbose).splitlines()
    assert [line for line in lines if cell_width(line) > width] == []


@settings(max_examples=examples(50))
@given(st.text(max_size=40))
def test_no_text_from_a_disk_controls_the_terminal(name: str) -> None:
    disk = replace(PLAN.disk, model=name + HOSTILE, serial=name, path=name or "x")
    places = (replace(PLAN.places[0], what=name + HOSTILE, why=name), *PLAN.places[1:])
    said = text(replace(PLAN, disk=disk, places=places))
    assert all(char.isprintable() or char == "\n" for char in said)


# The map


def drawn(places: tuple[Place, ...], width: int = 80) -> list[str]:
    plan = replace(PLAN, places=places, steps=())
    return [line[10:] for line in "".join(text_of(plan_map_lines(plan, width=width))).splitlines()]


def test_both_bars_use_the_same_scale_and_a_move_to_the_right_is_visible() -> None:
    _, before, after = drawn(PLAN.places)
    assert before.index("[1") < after.index("[1")
    assert before.index("[2") == after.index("[2")
    assert len(before.rstrip()) <= 70


def test_the_journal_is_drawn_neither_before_nor_after_the_plan() -> None:
    bars = "".join(text_of(plan_map_lines(PLAN, width=80))).splitlines()[1:]
    assert [bar.split()[0] for bar in bars] == ["before", "after", "journal"]
    assert ["J" in bar for bar in bars] == [False, False, True]
    on_disk = tuple(step for step in PLAN.steps if not isinstance(step, WriteJournal))
    assert "journal" not in "".join(text_of(plan_map_lines(replace(PLAN, steps=on_disk), width=80)))


def test_the_title_of_a_plan_that_moves_is_its_goal_and_a_shrink_is_named() -> None:
    assert text(PLAN).startswith(f"{PLAN.disk.path}: goal: every start on 1MiB\n")
    first = replace(PLAN.places[0], after=Extent(MIB, OLD.length - MIB))
    step = ShrinkContent(1, OLD, "ext3", OLD.length - MIB)
    shrunk = replace(PLAN, places=(first, *PLAN.places[1:]), steps=(step, *PLAN.steps))
    assert "up by 992.5KiB, shrunk " in text(shrunk, width=200)
    first = replace(first, after=Extent(OLD.start, OLD.length - MIB))
    assert "keeps its start, shrunk to " in text(replace(shrunk, places=(first, *PLAN.places[1:])), width=200)


def test_logical_partitions_are_parked_with_their_only_container() -> None:
    assert step_title(ParkEntries((3, 5, 6), (3,))).startswith("park partition 3, and with it 5, 6: ")
    assert step_title(ParkEntries((2, 3, 5), (2, 3))).startswith("park partitions 2, 3, and with them 5: ")


def test_a_disk_on_which_nothing_moves_is_drawn_once() -> None:
    assert len(drawn(PLAN.places[1:2])) == 2


def test_bars_are_to_scale() -> None:
    half = Extent(SIZE // 2, SIZE // 2)
    bar = drawn((Place(1, half, half, "x"),))[1]
    assert 60 <= len(bar) <= 70, "a line of 80, less the words before it"
    assert abs(bar.index("[") - len(bar) // 2) <= 2


@st.composite
def crowded(draw: st.DrawFn) -> tuple[Place, ...]:
    edges = sorted(draw(st.sets(st.integers(0, SIZE // 512), min_size=2, max_size=16)))
    pairs = list(zip(edges[::2], edges[1::2], strict=False))
    return tuple(
        Place(number, Extent(a * 512, (b - a) * 512), Extent(a * 512, (b - a) * 512), "x")
        for number, (a, b) in enumerate(pairs, 1)
    )


@settings(max_examples=examples(200))
@given(crowded(), st.sampled_from([80, 120, 200]))
def test_every_partition_of_any_size_is_visible_in_order(places: tuple[Place, ...], width: int) -> None:
    bar = drawn(places, width)[1]
    assert len(bar) <= width - 10
    assert re.findall(r"\d", bar) == [str(place.number) for place in places]


def test_for_more_partitions_than_columns_no_bar_is_drawn() -> None:
    places = tuple(Place(number, *(Extent(number * 2 * MIB, MIB),) * 2, "x") for number in range(1, 200))
    assert drawn(places) == []


# Events and progress


def test_every_event_is_a_line_of_json_that_names_the_step_and_its_partition() -> None:
    begin = json.loads(plan_event_json(PLAN))
    assert (begin["event"], begin["digest"], begin["steps"]) == ("plan", digest(PLAN), len(PLAN.steps))
    lines = [
        json.loads(event_json(PLAN, event)) for event in (StepBegun(5), Progress(5, 10, 20), StepDone(5), Said("so"))
    ]
    assert [line["event"] for line in lines] == ["step-begun", "progress", "step-done", "said"]
    assert all((line["step"], line["partition"]) == ("CopyContent", 1) for line in lines[:3])
    assert (lines[1]["done"], lines[1]["total"], lines[3]["text"]) == (10, 20, "so")
    end = json.loads(end_json(state="new", changed=True, sentences=("a",), hint=""))
    assert (end["event"], end["state"], end["sentences"]) == ("end", "new", ["a"])


def test_every_field_of_an_event_and_of_a_status_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
    documents = [json.loads(line) for line in (
        plan_event_json(PLAN), event_json(PLAN, Progress(5, 10, 20)), event_json(PLAN, StepBegun(0)),
        event_json(PLAN, StepDone(0)), event_json(PLAN, Said("so")), event_json(PLAN, Waiting("/dev/sdb", "read", 5)),
        end_json(state="new", changed=True, sentences=(), hint=""),
        status_json("x.img", Standing("in-flight")),
    )]  # fmt: skip
    names = {name for document in documents for name in document}
    names |= {document["event"] for document in documents if "event" in document}
    assert not [name for name in names if f"`{name}`" not in page]


def test_plans_with_every_kind_of_step_conform_to_the_published_schema() -> None:
    plans = (PLAN, LAYOUT, CONVERT, FORMAT, DIRECTORIES, REFORMAT)
    for plan in plans:
        document = json.loads(to_json(plan))
        check(document)
        document["plan"]["steps"][0]["partition"] = "one"
        with pytest.raises(jsonschema.ValidationError):
            check(document)
    kinds = {type(step).__name__ for plan in plans for step in plan.steps}
    assert kinds == set(STEPS)


def test_an_event_of_an_unknown_step_is_accepted() -> None:
    assert json.loads(event_json(PLAN, StepBegun(99)))["step"] is None


def test_json_progress_is_one_object_per_line_and_is_written_immediately() -> None:
    stream = io.StringIO()
    with progress_json(PLAN, stream) as tell:
        tell(StepBegun(0))
        assert len(stream.getvalue().splitlines()) == 2


def test_rate_and_time_left_follow_from_the_clock() -> None:
    seconds = iter([100.0, 104.0])
    pace = Pace(lambda: next(seconds))
    assert pace.words(Progress(0, 0, 100 * MIB)) == "0B of 100MiB"
    assert pace.words(Progress(0, 40 * MIB, 100 * MIB)) == "40MiB of 100MiB, 10MiB/s, 6 s left"


STEADY = (
    (0.0, 0), (1.87, 31), (1.87, 32), (3.7, 64), (5.53, 96), (7.29, 128), (9.17, 160), (10.92, 192), (12.68, 224),
    (14.42, 256), (16.22, 288), (17.97, 318), (17.98, 318), (19.87, 348),
)  # fmt: skip
PAUSED = (
    (0.0, 0), (1.87, 31), (1.87, 32), (3.69, 64), (5.51, 96), (13.05, 128), (14.82, 160), (16.56, 192), (18.33, 224),
    (20.11, 256), (21.88, 288), (23.63, 318), (23.64, 318), (25.53, 348),
)  # fmt: skip
CACHED = tuple((done / 100, done) for done in range(0, 200, 10))
BURST = (*CACHED, *((done / 10 - 18, done) for done in range(200, 1001, 10)))
"""Seconds and MiB: a realign at 16 MiB/s, the same with a pause of 7 s, and a cache that takes the first fifth."""


@pytest.mark.parametrize(("series", "most"), [(STEADY, 0.5), (PAUSED, 5.0), (BURST, 6.0)])
def test_the_estimated_end_does_not_jump_and_comes_close(series: Sequence[tuple[float, int]], most: float) -> None:
    """`most`: seconds by which one event may move the estimated end; at the end of the first measurement any."""
    clock = iter(at for at, _ in series)
    pace, total = Pace(lambda: next(clock)), series[-1][1]
    left = [pace.note(Progress(0, done * MIB, total * MIB)) for _, done in series]
    ends = [at + seconds for (at, _), seconds in zip(series, left, strict=True) if seconds is not None]
    assert len(ends) > len(series) / 2, "there is an estimate most of the time"
    assert max(abs(later - earlier) for earlier, later in pairwise(ends)) <= most
    last = series[-1][0]
    assert all(abs(end - last) <= 0.1 * last for end in ends[-len(ends) // 4 :])


def test_at_the_rate_shown_the_rest_takes_the_time_shown() -> None:
    """A cache took the first half: the estimated end follows slowly."""
    clock = iter([0.0, 10.0, 20.0])
    pace = Pace(lambda: next(clock))
    words = [pace.words(Progress(0, done * MIB, 1000 * MIB)) for done in (0, 500, 520)][-1]
    found = re.fullmatch(r"520MiB of 1000MiB, ([\d.]+)MiB/s, (\d+) s left", words)
    assert found is not None
    assert 480 / float(found[1]) == pytest.approx(float(found[2]), abs=0.6)


def test_the_rate_begins_again_with_the_next_member_of_an_array() -> None:
    clock = iter([0.0, 10.0, 20.0, 30.0])
    pace = Pace(lambda: next(clock))
    words = [pace.words(Progress(0, done * MIB, 100 * MIB)) for done in (0, 90, 0, 10)]
    assert words[:2] == ["0B of 100MiB", "90MiB of 100MiB, 9MiB/s, 1 s left"]
    assert words[2:] == ["0B of 100MiB", "10MiB of 100MiB, 1MiB/s, 2 min left"]


def test_a_resynchronisation_is_estimated_in_the_same_way() -> None:
    """The kernel's own rate is that of the last moments; here it has stopped for one."""
    clock = iter([0.0, 10.0])
    pace = Pace(lambda: next(clock))
    assert resync_progress(None, None, None, pace) == ("resynchronising: waiting to start", 0.0, None)
    assert resync_progress(0, 100 * MIB, MIB, pace) == ("resynchronising: 0.0 %, 1MiB/s", 0.0, None)
    assert resync_progress(50 * MIB, 100 * MIB, 0, pace) == ("resynchronising: 50.0 %", 0.5, 10.0)


def test_a_clock_that_does_not_advance_gives_no_rate() -> None:
    pace = Pace(lambda: 1.0)
    pace.words(Progress(0, 0, MIB))
    assert pace.words(Progress(0, MIB, MIB)) == "1MiB of 1MiB"


def test_progress_lines_are_few_for_any_number_of_events() -> None:
    stream = io.StringIO()
    with progress_lines(PLAN, stream, lambda: 1.0) as tell:
        tell(StepBegun(5))
        for done in range(2049):
            tell(Progress(5, done, 2048))
        tell(Said("well" + HOSTILE))
        tell(StepDone(5))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "6/9 copy partition 1"
    assert 10 <= len(lines) <= 25
    assert lines[-2].startswith("  2KiB of 2KiB") and "\x1b" not in stream.getvalue()


def test_the_steps_of_a_rollback_are_counted_down_as_its_bar_grows() -> None:
    stream = io.StringIO()
    with progress_lines(PLAN, stream, lambda: 1.0, back=True) as tell:
        for index in (5, 4, 3):
            tell(StepBegun(index))
        tell(Progress(5, 30 * MIB, 40 * MIB))
    *lines, last = stream.getvalue().splitlines()
    assert [line.partition(",")[0] for line in lines] == ["3 left: step 6", "2 left: step 5", "1 left: step 4"]
    assert last == "  at the old place: 30MiB of 40MiB", "what was never moved counts, too"


def test_a_long_stall_is_reported_less_and_less_often_until_the_next_stall() -> None:
    stream = io.StringIO()
    with progress_lines(PLAN, stream, lambda: 1.0) as tell:
        for seconds in (*range(5, 3600, 5), 5):
            tell(Waiting("/dev/sdb" + HOSTILE, "write", seconds))
    lines = stream.getvalue().splitlines()
    assert [int(line.split(" s. ")[0].split()[-1]) for line in lines[::2]] == [
        5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5,
    ]  # fmt: skip
    assert "/dev/sdb" in lines[0] and "a write" in lines[0] and "nothing is lost" in lines[0]
    assert "Ctrl-C is safe" in lines[1] and "aligntool resume" in lines[1] and "\x1b" not in stream.getvalue()


def test_a_progress_bar_is_drawn_and_text_from_a_disk_is_shown_verbatim() -> None:
    stream = io.StringIO()
    with progress_bar(PLAN, stream, lambda: 1.0) as tell:
        tell(StepBegun(5))
        tell(Progress(5, MIB, 2 * MIB))
        tell(Waiting("/dev/sdb", "flush", 7))
        tell(Said("[red]no markup[/red]" + HOSTILE))
        tell(StepDone(5))
    assert "no response for 7 s" in stream.getvalue()
    assert "[red]no markup[/red]" in " ".join(stream.getvalue().split())
    assert "6/9 copy partition 1" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "1 s"), (89, "89 s"), (90, "2 min"), (600, "10 min"), (12_000, "3 h 20 min")]
)
def test_durations_are_rounded_to_a_suitable_unit(seconds: int, words: str) -> None:
    assert time_words(seconds) == words


def test_a_start_between_two_sectors_has_no_sector_number_and_down_is_towards_byte_0() -> None:
    assert sector_words(32256, 512) == "63" and sector_words(32256, 4096) == "–"
    assert distance_words(-512) == "down by 512B"


# Status


Standing = partial(Status, sentences=("Partition 1 is half copied.",), plan=PLAN, step=5, done=10 * MIB, total=40 * MIB)


def test_the_status_of_a_disk_in_flight_shows_its_progress_and_the_next_commands() -> None:
    lines = status_lines("x.img", Standing("in-flight"), width=80, type_next=("aligntool resume x.img",))
    said = "".join(text_of(lines))
    for words in (
        "in flight",
        "step 6 of 9, copy partition 1",
        "10MiB of 40MiB",
        "half copied",
        "aligntool resume x.img  # finishes the move: 4 steps, 30MiB, about 6 min\n",
    ):
        assert words in said, words
    back = "".join(text_of(status_lines("x.img", Standing("in-flight", forward=False), width=80)))
    assert "next of the rollback: step 6 of 9 (3 steps left), copy back" in back
    assert "at their old place again: 30MiB of 40MiB" in back, "as the bar of the rollback, which grows"


WAYS = ("aligntool resume x.img", "aligntool rollback x.img")


def test_each_way_out_is_a_command_and_what_is_left_of_it() -> None:
    left = Left(step=5, moved=10 * MIB, total=40 * MIB, rate=MIB)
    assert about_ways(WAYS, PLAN, left) == [
        "finishes the move: 4 steps, 30MiB, about 30 s", "restores the old places: 3 steps, 10MiB, about 10 s",
    ]  # fmt: skip
    assert about_ways(WAYS, PLAN, Left(8, 40 * MIB, 40 * MIB)) == [
        "closes the journal: everything is at its new place", "no longer possible: everything is at its new place",
    ]  # fmt: skip
    assert about_ways(WAYS, PLAN, replace(left, begun=False)) == ["closes the journal: nothing was moved yet"] * 2
    assert about_ways(("aligntool status x.img",), PLAN, left) == [""]


@pytest.mark.parametrize(("start", "named"), [(0, "the whole disk"), (MIB, "partition 1")])
def test_the_end_of_a_rollback_names_where_the_shorter_file_system_is_then(start: int, named: str) -> None:
    plan = replace(PLAN, steps=(ShrinkContent(1, Extent(start, 9 * MIB), "ext4", 8 * MIB),))
    shorter = "now shorter than before: the ext4 on "
    assert what_stays_shrunk(plan, ended=True, back=True).startswith(f"{shorter}{named}; ")
    assert what_stays_shrunk(plan, ended=True, back=False).startswith(f"{shorter}partition 1; ")


def test_status_and_plan_name_what_a_rollback_leaves_of_a_shrink() -> None:
    kept = "a rollback leaves the ext3 on partition 2 shorter; to lengthen it again: by hand, with its own tool: "
    unshrunk = replace(PLAN, steps=tuple(step for step in PLAN.steps if not isinstance(step, ShrinkContent)))
    for found, said in (
        (Standing("in-flight"), True),
        (Standing("in-flight", complete=True), False),
        (Standing("in-flight", plan=unshrunk), False),
    ):
        assert (kept in "".join(text_of(status_lines("x.img", found, width=200)))) == said
        assert any(one.startswith(kept) for one in json.loads(status_json("x.img", found))["sentences"]) == said
    risk = "".join(text_of(plan_lines(PLAN, width=400, type_next="aligntool realign x.img")))
    assert f"rollback undoes it, until it is complete; {kept}docs/by-hand.md#make-a-partition-longer" in risk
    assert about_ways(WAYS, unshrunk, Left(step=4, moved=0, total=40 * MIB))[1].startswith("restores the old state:")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_what_a_command_does_is_a_comment_behind_or_below_it(width: int) -> None:
    about = about_ways(WAYS, PLAN, Left(5, 10 * MIB, 40 * MIB, MIB))
    lines = "".join(text_of(command_lines(WAYS, width, about))).splitlines()
    assert all(cell_width(line) <= width for line in lines)
    assert len(lines) == (2 if width == 200 else 4)
    assert [line.partition("#")[0].strip(" →") for line in lines if "→" in line] == list(WAYS)
    assert [line.partition("# ")[2] for line in lines if "#" in line] == about


@pytest.mark.parametrize("state", ["old", "in-flight"])
def test_every_state_is_shown_as_text_and_as_json_also_without_a_plan(state: str) -> None:
    standing = Standing(state, plan=None, step=0)
    assert "x.img: " in "".join(text_of(status_lines("x.img", standing, width=80)))
    document = json.loads(status_json("x.img", standing))
    assert (document["state"], document["goal"], document["index"]) == (state, None, None)


def test_the_json_of_a_disk_in_flight_has_step_partition_and_direction() -> None:
    document = json.loads(status_json("x.img", Standing("in-flight"), type_next=("a", "b")))
    assert (document["step"], document["partition"], document["index"]) == ("CopyContent", 1, 5)
    assert (document["number"], document["steps"]) == (6, len(PLAN.steps))
    said = "".join(text_of(status_lines("x.img", Standing("in-flight"), width=80)))
    assert f"step {document['number']} of {document['steps']}" in said
    assert json.loads(event_json(PLAN, StepBegun(5)))["number"] == 6
    assert (document["direction"], document["next"]) == ("forward", ["a", "b"])
    assert (document["done"], document["total"]) == (10 * MIB, 40 * MIB)


def test_unrecognised_data_of_a_member_are_not_named_by_their_digest() -> None:
    first, second = (replace(drive(number), sampled=Sampled(22, 19, 0, "ab" * 32, 16 * MIB)) for number in (0, 1))
    plan = planned(goal(wipe=("/dev/nvme0n1", "/dev/nvme1n1")), first, second)
    lines = list(text_of(raid_plan_lines(plan, width=80)))
    for name in ("/dev/nvme0n1", "/dev/nvme1n1"):
        (row,) = (line for line in lines if line.split()[:1] == [f"{name}p1"])
        assert row.rstrip().endswith("unrecognised data")
    assert not any("SHA-256" in line for line in lines)
