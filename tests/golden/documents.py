"""Documents of version 1 that are stored as files, and how each is read and written.

The values are written by hand, so that the content of a file is known without reading it. Both the program that made
the files and the tests use them.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from aligntool.change import (
    ArrayPlan,
    ArrayRequest,
    LayoutGoal,
    PartitionRequest,
    Plan,
    RaidGoal,
    RealignGoal,
    plan_with_request,
    to_json,
)
from aligntool.convert.operation import Conversion
from aligntool.measure import results
from aligntool.measure.alignment import Knee, Load, Rate
from aligntool.measure.alignment import Place as At
from aligntool.measure.fio import Pattern
from aligntool.measure.results import Conditions, DriveState
from aligntool.measure.sweeps import Setting, Spans, Starts
from aligntool.measure.unit import Boundary, Evidence, Inference, KindResult, Penalty, ProbedDisk, ProbeResult, document
from aligntool.measure.unit_design import Kind
from aligntool.raid.ceilings import Ceiling
from aligntool.raid.measured import Identity, Sample, Tuning, tuning_text
from aligntool.raid.record import Record, save
from aligntool.raid.reformat import ReformatGoal
from aligntool.raid.running import ArrayView, MemberView, PersistGoal
from aligntool.raid.settings import SettingSample, SettingsTuning, settings_text
from aligntool.realign.request import Request
from aligntool.recipes.goals import BenchGoal, BenchTest, Recipe
from aligntool.render.experiments import alignment_json, span_json
from aligntool.render.plan import arrays_json
from aligntool.render.recipes import recipes_json
from aligntool.steps import (
    ApplySettings,
    BindMount,
    FormatDrive,
    MakeArray,
    PrepareDirectory,
    ReencryptSectors,
    SettingChange,
    Synchronise,
)
from aligntool.units import KIB, MIB, Extent
from tests.measure.bench.sample_results import result, series
from tests.render.sample_plans import ARRAY, CONVERT, LAYOUT, PLAN, REFORMAT

V1 = Path(__file__).parent / "v1"

ASKED = Request(RealignGoal((1, 5), 4 * MIB, True, True, "j", 8), 512, 4096, 16 * KIB, ("--grain", "4MiB"))
_REST = (PLAN.attention, PLAN.notes, PLAN.estimate)
PERSIST = ArrayPlan("persist", PLAN.disk, PLAN.goal, (), ARRAY.steps[-3:], *_REST)
REENCRYPT = ReencryptSectors(2, Extent(MIB, 4 * MIB), "u", 512, 4096)
LAYERS = ArrayPlan("layers", PLAN.disk, PLAN.goal, (), (REENCRYPT,), *_REST)
PERSIST_GOAL = PersistGoal("debian", "/srv/data")
DIRECTORIES = (
    FormatDrive(PLAN.disk, 1, 0, 512, 2, 4096),
    PrepareDirectory("/srv/data/kubelet", "/srv/data", "root", "1000", "2770"),
    BindMount("/var/lib/kubelet", "/srv/data/kubelet", "/srv/data"),
)
ENSURE = ArrayPlan("raid", PLAN.disk, PLAN.goal, (), DIRECTORIES, *_REST)
FIRST_SYNC = (replace(ARRAY.of(MakeArray)[0], zeroed=True), Synchronise("/dev/md/data"))
SYNCHRONISED = ArrayPlan("raid", PLAN.disk, PLAN.goal, (), FIRST_SYNC, *_REST)
APPLIED = ApplySettings("0:1:2:3", "/dev/md/data", (SettingChange("md/stripe_cache_size", "256", "4096"),))
SETTINGS = ArrayPlan("persist", PLAN.disk, PLAN.goal, (), (APPLIED,), *_REST)
SETTINGS_GOAL = PersistGoal(None, None, "", "{}")
RAID_GOAL = RaidGoal(
    "raid10", "fast", "database", 8 * KIB, 64 * KIB, "f2", "internal", "1.1", "ext4", 4096, 512, MIB, "/srv/f",
    ("noatime",), "partitions", 2 * MIB, 3 * MIB, 4 * MIB, (3, None), ("sda",), "{}", "fedora", "1:2:3:4", "5-6",
)  # fmt: skip
DRIVES = ("/dev/a", "/dev/b")

PLANS: dict[str, tuple[Plan, Callable[[Plan], str]]] = {
    "plan-realign": (
        replace(PLAN, steps=PLAN.steps[2:]),
        lambda plan: plan_with_request(plan, "asked", Request()) + "\n",
    ),
    "plan-realign-shrink": (PLAN, lambda plan: plan_with_request(plan, "asked", ASKED) + "\n"),
    "plan-layout": (LAYOUT, to_json),
    "plan-layers": (LAYERS, lambda plan: plan_with_request(plan, "asked", Request()) + "\n"),
    "plan-raid": (ARRAY, lambda plan: plan_with_request(plan, "wanted", ArrayRequest(DRIVES, RAID_GOAL))),
    "plan-ensure": (ENSURE, lambda plan: plan_with_request(plan, "asked", Request()) + "\n"),
    "plan-first-sync": (SYNCHRONISED, lambda plan: plan_with_request(plan, "asked", Request()) + "\n"),
    "plan-reformat": (REFORMAT, lambda plan: plan_with_request(plan, "reformat", ReformatGoal(4096)) + "\n"),
    "plan-convert": (CONVERT, lambda plan: plan_with_request(plan, "convert", Conversion(Request(), (4096,))) + "\n"),
    "plan-persist": (PERSIST, lambda plan: plan_with_request(plan, "persist", PERSIST_GOAL) + "\n"),
    "plan-settings": (SETTINGS, lambda plan: plan_with_request(plan, "persist", SETTINGS_GOAL) + "\n"),
}
"""Every plan, and how the command that makes one writes it into a file."""

TRACE = {0: {"before": "eA==", "after": "00"}, 3: {"device": "/dev/md/data"}}
FILE = Path("/nowhere/arrays/x.json")
RECORDS = {
    "record-begun": Record(FILE, ARRAY, 0, True),
    "record-between": Record(FILE, ARRAY, 3, False, True, TRACE),
    "record-back": Record(FILE, ARRAY, 2, True, False, TRACE),
    "record-persist": Record(FILE, PERSIST, 1, True, True, {0: TRACE[0]}),
}

SEEN = Conditions(
    "6.1", "fio-3.33", "A processor", 8, "performance", 0.5, True, "ext4", "rw", 1 << 40, 1 << 39, True, 0.25,
    (DriveState("sda", "M", "1.0", 1 << 40, "ata", False, "6 Gb/s", True, "none", 32, "write back", "raid1",
                "idle", True, 30.0, 40.0),),
)  # fmt: skip
SETTING = Setting("file", 1 << 30, 1 << 29, 1.5, 5, True, "libaio")
DRIVE = ProbedDisk("sda", "/dev/sda", 1 << 40, "M", "S", "W", "1.0")
STARTS = Starts(
    "2026-01-02T03:04:05Z", "/dev/sda", 4096, "reported",
    tuple(
        Rate(Load(Pattern.RANDOM_READ, 4 * KIB, 32), At(title, start, start % 4096, control), repeat,
             10000.0 + repeat - start % 4096, 12.5)
        for title, start, control in (("aligned", MIB, False), ("control", 2 * MIB, True), ("off", 32256, False))
        for repeat in range(1, 6)
    ),
    conditions=SEEN, setting=SETTING, disk=DRIVE,
)  # fmt: skip
SPANS = Spans(
    "2026-01-02T03:04:05Z", "/dev/sda", True, Knee(1 << 30, 1 << 31, 0.5, 0.9, "a knee"),
    {1 << 30: [1000.0, 1010.0], 1 << 31: [500.0, 505.0]}, None, {1 << 30: [10.0, 11.0], 1 << 31: [9.0, 9.5]},
    conditions=SEEN, setting=SETTING, disk=DRIVE, complete=False,
)  # fmt: skip
PROBED = ProbeResult(
    DRIVE,
    Inference(
        (Boundary(4096, (Evidence(Kind.READ, 40.0, (30.0, 50.0), 0.5, 0.99),)),),
        (Boundary(65536, (Evidence(Kind.SHIFT, 4.0, (3.0, 5.0), 0.9, 0.5),)),),
        (KindResult(Kind.READ, 100, 80.0, (Penalty(4096, 40.0, 1.0),), "too few"),),
    ),
    512, (Extent(0, MIB), Extent(MIB, 2 * MIB)), 7, 8, 9, 0.25, 10.5, 11, True, "/srv/file",
)  # fmt: skip
TUNING = Tuning(
    "raid10", "f2", "database", 8 * KIB, "internal",
    (Identity("nvme0n1", "M", "S", "W", 1 << 40, "1.0", 3, 2), Identity("nvme1n1", None, None, None, None)),
    1 << 33, 10.5, True, (("kernel", "6.1"), ("fio", "fio-3.33")),
    (Sample(1, 64 * KIB, "randread", 11, 12, 13.5), Sample(2, 128 * KIB, "write", 0, 14)),
)  # fmt: skip
BENCH = replace(result(series(1e6, 2e6), passes=(1, 2), score="as-ssd"), conditions=SEEN, skipped=("a test",))

SHOWN = ArrayView(
    "md0", "/dev/md0", "raid5", 1 << 40, 64 * KIB, "1.2", "active",
    (MemberView("sda1", "1 MiB, aligned", "sda", "M", "x4", "x2", 5, ("uplink",), True, "HMB", MIB, True),
     MemberView("sdb1", "not known")),
    ("ext4",), Ceiling(7, 8, "the link", ("sdb",), 9, "the drive", True), ("a finding",), ("a command",),
)  # fmt: skip
RECIPES = (
    Recipe("name0", "file0", "summary", "note", "source", RealignGoal((1,), MIB, True, False, None, 512)),
    Recipe("name1", "file1", "summary", None, "source",
           LayoutGoal((PartitionRequest(MIB, "esp", "boot"), PartitionRequest(None, "linux")), "gpt", MIB, 2 * MIB,
                      True)),
    Recipe("name2", "file2", "summary", None, "source", RAID_GOAL),
    Recipe("name3", "file3", "summary", None, "source",
           BenchGoal((BenchTest(True, 4 * KIB, 32, 2, True),), 1 << 30, 5.5, 6, "twice", True, "as-ssd")),
)  # fmt: skip

SETTINGS_TUNING = SettingsTuning(
    "0:1:2:3", "raid5", TUNING.members, "general", 16 * KIB, "array", 1 << 30, 5.0, True, {"kernel": "6.1"},
    {"md/stripe_cache_size": "256"},
    tuple(SettingSample(number, "md/stripe_cache_size", value, "read", rate, 0, 12.5)
          for number in range(3)
          for value, rate in (("256", 1000), ("4096", 2000))),
)  # fmt: skip

RESULTS: dict[str, Callable[[], str]] = {
    "bench": lambda: results.to_json(BENCH),
    "bench-alignment": lambda: alignment_json(STARTS, STARTS.rows),
    "bench-span": lambda: span_json(SPANS, None),
    "probe": lambda: json.dumps(document(PROBED, "0.1"), indent=1) + "\n",
    "raid-show": lambda: arrays_json([SHOWN]),
    "recipes": lambda: recipes_json(RECIPES),
    "raid-tune": lambda: tuning_text(TUNING, {"chunk": 65536}),
    "raid-settings": lambda: settings_text(SETTINGS_TUNING),
}
"""What was measured or is shown, as the command writes it."""


def kept(name: str) -> str:
    return (V1 / f"{name}.json").read_text()


def record_text(record: Record, folder: Path) -> str:
    """Return the record as it is written to a file."""
    save(replace(record, file=folder / "x.json"))
    return (folder / "x.json").read_text()
