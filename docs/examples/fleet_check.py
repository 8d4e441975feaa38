#!/usr/bin/env python3
"""Audit disks or image files, plan what can be realigned, and with --apply realign it.

Usage: fleet_check.py [--apply] DISK...

A line of JSON for each disk, and with --apply the events of each move. The exit code is 1 if a disk is still
off its boundaries or could not be judged.
"""

import json
import sys

from aligntool import api


def off(judged: api.Judged) -> int:
    """Return how many partitions are off their boundaries."""
    return sum(verdict.answer is api.Answer.OFF and verdict.matters for verdict in judged.verdicts)


def check(judged: api.Judged, *, apply: bool) -> bool:
    """Report one disk, and realign it where that is wanted and possible. Return whether it is on its
    boundaries.
    """
    line = {"disk": judged.disk.path, "off": off(judged), "moves": [], "bytes": 0, "refusals": []}
    plan = None
    try:
        if line["off"]:
            plan = api.plan_realign(judged.disk.path)
            line["moves"] = [place.number for place in plan.plan.places if place.before != place.after]
            line["bytes"] = plan.plan.estimate.bytes_to_copy if plan.plan.estimate else None
    except api.Refused as refused:
        line["refusals"] = [
            {"code": one.code, "text": one.text, "next": one.hint} for one in refused.refusals
        ]
    print(json.dumps(line), flush=True)
    if plan is None or not apply:
        return not line["off"]
    planned = plan
    done = api.apply(planned, lambda event: print(api.event_json(planned, event), end="", flush=True))
    return not off(done.judged)


def main() -> int:
    """Return the exit code."""
    apply = "--apply" in sys.argv[1:]
    targets = [word for word in sys.argv[1:] if word != "--apply"]
    report = api.audit(targets)
    for unseen in report.inventory.unseen:
        print(f"{unseen.what}: {unseen.why}", file=sys.stderr)
    good = [check(judged, apply=apply) for judged in report.judged]
    return 0 if all(good) and not report.inventory.unseen else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (api.Refused, api.Stopped) as error:
        print(f"{error}\n  {error.hint}", file=sys.stderr)
        sys.exit(error.exit_code)
