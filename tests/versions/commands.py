"""Every command line that is recorded: scenarios of steps, some on copies of images.

In: names of inputs, codes and recipes of the checkout, block devices. Out: scenarios for the driver.
"""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Step = dict[str, object]
LARGE = 1 << 30
SEARCHING = ("status", "resume", "rollback")
MODELS = (
    "WD20EARS",
    "WDC WD10EZRX-00A",
    "ST2000DM001",
    "Samsung SSD 850 PRO",
    "Samsung SSD 980 PRO",
    "INTEL SSDPE2KX040T8",
    "Amazon EC2 NVMe Instance Storage",
    "SOLIDIGM SB5PH27X153T",
    "Micron_7450",
    "nothing like it",
    "",
)


def read_lines(path: Path) -> dict[str, list[str]]:
    """The command lines of lines.txt, by section."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            found[section] = []
        elif line and not line.startswith("#"):
            found[section].append("" if line == "(nothing)" else line)
    return found


LINES = read_lines(Path(__file__).with_name("lines.txt"))
FEW = ("old.img", "gpt34.img", "logical.img", "empty.img", "sectors-4096.img")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What commands are run on."""

    images: Sequence[str]
    machines: Sequence[str]  # archives; unpacked in the folder machines/
    codes: Sequence[str]
    recipes: Sequence[str]
    devices: Sequence[str] = ()  # four empty ones of 512 bytes, one of 4096, one with a table
    folder: Path = field(default_factory=Path)
    root: bool = False


def step(line: str, **more: object) -> Step:
    return {"words": line.split(), **more}


def scenario(name: str, *steps: Step, files: Sequence[str] | None = None) -> dict[str, object]:
    found: dict[str, object] = {"name": name, "steps": steps}
    return found if files is None else found | {"files": list(files)}


def scenarios(inputs: Inputs) -> list[dict[str, object]]:
    """Return them all, each with a number."""
    found: dict[str, dict[str, object]] = {}
    for each in (*_reading(inputs), *_keeping(), *_changing(), *_in_flight(), *_demo()):
        name = key = str(each["name"])
        steps = each["steps"]
        assert isinstance(steps, tuple)
        if len(steps) > 1:
            name = key = f"{name}, {' '.join(steps[0]['words'])}"
        elif not each.get("files"):
            key = f"{name} {steps[0]['words']}"  # the same line twice is run once
            if key in found:
                continue
        count = sum(other == key or other.startswith(f"{key} (") for other in found)
        key, name = (f"{key} ({count + 1})", f"{name} ({count + 1})") if count else (key, name)
        found[key] = {**each, "name": name, "number": f"{len(found):05}"}
    return list(found.values())


def _reading(inputs: Inputs) -> Iterator[dict[str, object]]:
    for command in LINES["commands"]:
        yield scenario("help", step(f"{command} --help"))
    lines = [*LINES["alone"], *(f"explain {code}" for code in inputs.codes)]
    lines += [f"recipes show {more}{name}" for name in inputs.recipes for more in ("", "--json ")]
    lines += [f"bench run --dry-run --profile {name} old.img" for name in inputs.recipes]
    for image in inputs.images:
        large = (inputs.folder / image).stat().st_size > LARGE  # all of it may be searched for a journal
        taken = [
            line for line in LINES["table" if "/" in image else "image"] if not (large and line.startswith(SEARCHING))
        ]
        lines += [line.format(image) for line in taken]
    lines += [line.format(*[image] * 2) for image in FEW for line in LINES["few"]]
    for machine in inputs.machines:  # the archive, which is unpacked each time, and then the folder
        folder = f"machines/{machine.removesuffix('.tar.xz')}"
        lines += [line.format(machine if number < 2 else folder) for number, line in enumerate(LINES["machine"])]
    for line in lines:
        if line == "audit --json" or line.startswith(("raid show nothing", "raid persist nothing")):
            continue  # they look at the whole machine that this runs on
        yield scenario("read", step(line))
    for model in MODELS:
        yield scenario("read", {"words": ["drives", model] if model else ["drives"]})
    if inputs.devices:
        for line in LINES["members"]:
            yield scenario("devices", step(line.format(*inputs.devices)))
    for machine in inputs.machines[-3:] if inputs.root else ():
        name = machine.removesuffix(".tar.xz")
        for line in LINES["live"]:
            yield scenario(f"on {name}", step(line, machine=str(inputs.folder / "machines" / name)))
    for line in ("--version", "--nonsense", "audit --json old.img", "plan realign old.img", "explain AT101"):
        yield scenario("program", step(line, program=True))
        yield scenario("standard output is full", step(line, program=True, stdout="full"))
    yield scenario(
        "log on standard input", step("trace --json -", stdin="time_s,op,lba,sectors\n0.1,R,8,8\n0.2,W,9,8\n")
    )


def _keeping() -> Iterator[dict[str, object]]:
    """Commands that write files of their own."""
    for image in ("old.img", "two.img", "gpt34.img", "logical.img", "middle.img"):
        yield scenario(
            "kept plan",
            step(f"plan realign -o plan.json {image}"),
            step(f"plan realign -o plan.json {image}"),
            step("apply plan.json"),
            step("apply --yes --json plan.json"),
            step("apply --yes plan.json"),
            step(f"audit --json {image}"),
            files=[image],
        )
        yield scenario(
            "page",
            step(f"report -o page.html {image}"),
            step(f"report -o page.html {image}"),
            step(f"report --overwrite -o page.html {image}"),
            files=[image],
        )
    yield scenario(
        "edited plan",
        step("plan realign -o plan.json old.img"),
        step("apply --yes plan.json", change=[{"file": "plan.json", "at": 90, "bytes": "3030"}]),
        files=["old.img"],
    )
    yield scenario(
        "plan of another disk",
        step("plan realign -o plan.json old.img"),
        step("apply --yes plan.json", change=[{"file": "old.img", "at": 440, "bytes": "77"}]),
        files=["old.img"],
    )
    yield scenario(
        "kept layout",
        step("plan layout --recipe desktop-uefi -o plan.json large.img"),
        step("plan layout --recipe data-disk -o table.json empty.img"),
        step("apply --yes --json table.json"),
        step("apply --yes table.json"),
        files=["large.img", "empty.img"],
    )
    yield scenario(
        "pictures",
        step("report old.img --chart map-old-img --svg map.svg"),
        step("report --bench slow.json --bench fast.json -o page.html old.img"),
        files=["old.img", "slow.json", "fast.json"],
    )


def _changing() -> Iterator[dict[str, object]]:
    """Moves and tables from the first write to the last."""
    for image in ("old", "two", "gpt34", "middle", "down", "logical", "fat", "tight", "luks", "lvm", "bare", "aligned"):
        for more in ("", " --json", " --shrink --json", " -p 1 --grain 4KiB --json"):
            yield scenario(
                "move",
                step(f"realign --yes{more} {image}.img"),
                step(f"audit --json {image}.img"),
                step(f"realign {image}.img"),
                files=[f"{image}.img"],
            )
    for answer in ("0x2005c0de\n", "yes\n", "\n"):
        yield scenario(f"answer {answer!r}", step("realign old.img", terminal=answer), files=["old.img"])
    yield scenario(
        "journal in a file",
        step("realign --yes --json --journal other.journal two.img"),
        step("status --json two.img"),
        files=["two.img"],
    )
    for recipe in ("data-disk", "desktop-uefi", "sd-card"):
        for image in ("empty.img", "large.img", "old.img", "both"):
            name = "damaged-both.img" if image == "both" else image
            yield scenario(
                "table",
                step(f"layout --yes --json --recipe {recipe} {name}"),
                step(f"layout --yes --wipe {name} --recipe {recipe} {name}"),
                step(f"audit --json {name}"),
                files=[name],
            )
    for parts in (
        "--table dos --part 8MiB:fat32:x --part rest:linux",
        "--part 4MiB:esp --part 4MiB:swap:s --part rest:linux-raid",
        "--sector-size 4096 --part rest:linux",
        "--grain 4MiB --spare-end 8MiB --part rest:linux",
    ):
        yield scenario(
            "table",
            step(f"layout --yes --json --wipe empty.img {parts} empty.img"),
            step("audit --json empty.img"),
            files=["empty.img"],
        )
    yield scenario(
        "table after a question",
        step("layout --recipe data-disk empty.img", terminal="empty.img\n"),
        files=["empty.img"],
    )


def _in_flight() -> Iterator[dict[str, object]]:
    """Moves that are cut before a flush, and what brings them to an end."""
    for image, last in (("old", 40), ("two", 30), ("gpt34", 30), ("logical", 40), ("down", 30), ("middle", 30)):
        name = f"{image}.img"
        for cut in range(1, last, 2 if image == "old" else 5):
            for way in ("resume", "rollback") if image == "old" else ("resume",) if cut % 2 else ("rollback",):
                yield scenario(
                    f"cut at {cut}",
                    step(f"realign --yes {name}", cut=cut),
                    step(f"status --json {name}"),
                    step(f"audit --json {name}"),
                    step(f"{way} --yes --json {name}"),
                    step(f"status --json {name}"),
                    files=[name],
                )
        yield scenario("cut again and again", step(f"realign --yes {name}", cut=9), *_again(name), files=[name])
        yield scenario(
            "interrupted",
            step(f"realign --yes --json {name}", cut=9, signal=int(signal.SIGINT)),
            step(f"status {name}"),
            step(f"rollback --yes {name}"),
            files=[name],
        )
        yield scenario("in flight", step(f"realign --yes {name}", cut=12), *_all_on(name), files=[name])
        for damage in (510, 532, -492, 446):
            yield scenario(
                f"in flight, damaged at {damage}",
                step(f"realign --yes {name}", cut=12),
                step(f"status --json {name}", change=[{"file": name, "at": damage, "bytes": "a5a5"}]),
                step(f"resume --yes {name}"),
                step(f"resume --json --restore-table {name}"),
                step(f"resume --json --restore-table --yes {name}"),
                step(f"audit --json {name}"),
                files=[name],
            )
    yield scenario(
        "journal in a file, cut",
        step("realign --yes --journal other.journal two.img", cut=12),
        step("status --json two.img"),
        step("status --json --journal other.journal two.img"),
        step("resume --yes two.img"),
        step("resume --yes --json --journal other.journal two.img"),
        files=["two.img"],
    )


def _again(name: str) -> tuple[Step, ...]:
    return (
        step(f"resume --yes {name}", cut=3),
        step(f"rollback --yes {name}", cut=2),
        step(f"resume --yes {name}"),
        step(f"rollback --yes {name}", cut=4),
        step(f"rollback --yes --json {name}"),
        step(f"audit --json {name}"),
    )


def _all_on(name: str) -> tuple[Step, ...]:
    lines = (
        "status",
        "audit",
        "audit --map",
        "audit -q",
        "audit --format prometheus",
        "plan realign",
        "plan realign --json",
        "plan layout --recipe data-disk --wipe",
        "realign --yes",
        "layout --yes --recipe data-disk --wipe",
        "report -o -",
        "resume --restore-table",
        "rollback",
    )
    return tuple(step(f"{line} {name} {name}" if line.endswith("--wipe") else f"{line} {name}") for line in lines)


def _demo() -> Iterator[dict[str, object]]:
    yield scenario("demo", step("demo"), files=[])
    lines = [line.format("disk.img", "disk.img") for line in LINES["image"]]
    yield scenario(
        "demo",
        step("demo disk.img"),
        step("demo disk.img"),
        *map(step, lines),
        step("realign --yes --json disk.img"),
        step("audit --json disk.img"),
        files=[],
    )
    yield scenario("demo with a picture", step("demo disk.img --picture picture.svg"), files=[])
    for cut in (6, 14, 25, 40):
        for way in ("resume", "rollback"):
            yield scenario(
                f"demo cut at {cut}",
                step("demo disk.img"),
                step("realign --yes --json disk.img", cut=cut),
                step("status --json disk.img"),
                step(f"{way} --yes --json disk.img"),
                files=[],
            )
