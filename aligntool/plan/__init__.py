"""Plans: the contract between thinking, acting and telling.

A plan is plain data. It can be read, kept, compared and carried to another terminal, for it holds no open file and no
function. Four readers walk the same steps: `render` tells them, `document` keeps them, `apply` does them, and the tests
check them. mypy lists the readers that have not learnt a new step yet.
"""

from aligntool.plan.document import STEPS, digest, from_json, step_name, to_json, wanted_of, with_wanted
from aligntool.plan.events import Event, KernelBehind, Progress, Said, StepBegun, StepDone
from aligntool.plan.goals import LayoutGoal, PartWish, RaidGoal, RealignGoal
from aligntool.plan.plans import Estimate, Place, Plan, Used
from aligntool.plan.steps import (
    ArrayStep,
    CheckContent,
    CloseJournal,
    CopyContent,
    EditFile,
    EntryChange,
    FileStep,
    Held,
    HoldContent,
    JournalPlace,
    Lanes,
    MakeArray,
    MakeFileSystem,
    MakeMember,
    MakeTable,
    NewEntry,
    ParkEntries,
    Patch,
    ReleaseContent,
    RewriteTable,
    RunCommand,
    ShrinkContent,
    Step,
    WriteFile,
    WriteJournal,
)
from aligntool.plan.subject import Subject
from aligntool.plan.wiping import DataArea

__all__ = [
    "STEPS",
    "ArrayStep",
    "CheckContent",
    "CloseJournal",
    "CopyContent",
    "DataArea",
    "EditFile",
    "EntryChange",
    "Estimate",
    "Event",
    "FileStep",
    "Held",
    "HoldContent",
    "JournalPlace",
    "KernelBehind",
    "Lanes",
    "LayoutGoal",
    "MakeArray",
    "MakeFileSystem",
    "MakeMember",
    "MakeTable",
    "NewEntry",
    "ParkEntries",
    "PartWish",
    "Patch",
    "Place",
    "Plan",
    "Progress",
    "RaidGoal",
    "RealignGoal",
    "ReleaseContent",
    "RewriteTable",
    "RunCommand",
    "Said",
    "ShrinkContent",
    "Step",
    "StepBegun",
    "StepDone",
    "Subject",
    "Used",
    "WriteFile",
    "WriteJournal",
    "digest",
    "from_json",
    "step_name",
    "to_json",
    "wanted_of",
    "with_wanted",
]
