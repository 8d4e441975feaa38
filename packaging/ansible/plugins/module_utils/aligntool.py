# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run the command aligntool and read its JSON. Messages are passed on, never parsed."""

import json

ARGUMENTS = {"executable": {"type": "path", "default": "aligntool"}}
REFUSED, STOPPED = 3, 4


class Aligntool:
    """The command on this host, for one module. Every failure ends the module."""

    def __init__(self, module):
        self._module = module
        name = module.params["executable"]
        self._program = name if "/" in name else module.get_bin_path(name, required=True)

    def run(self, *words):
        """Return the exit code, standard output and standard error."""
        environment = {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
        return self._module.run_command([self._program, *words], environ_update=environment)

    def document(self, *words, codes=(0,)):
        """Return the JSON document that the command prints with --json, and the exit code."""
        code, out, err = self.run(*words, "--json")
        if code not in codes:
            self.fail(code, out, err)
        return json.loads(out), code

    def unfinished_array(self):
        """Return the status of the unfinished array, or None. Disks in flight are other lines of the same
        output.
        """
        code, out, err = self.run("status", "--json")
        if not out:  # 3 with output: another disk could not be read
            self.fail(code, out, err)
        return next((one for one in map(json.loads, out.splitlines()) if one["state"] == "unfinished"), None)

    def plan(self, *words):
        """Return the plan of a dry run and None; if it is refused, None and (code, output, errors)."""
        code, out, err = self.run(*words, "--dry-run", "--json")
        return (None, (code, out, err)) if code else (json.loads(out)["plan"], None)

    def change(self, *words):
        """Make the change, and return its last event."""
        code, out, err = self.run(*words, "--yes", "--json")
        end = last_event(out)
        if code or not end:
            self.fail(code, out, err)
        return end

    def fail(self, code, out, err):
        """Fail with the exit code, every refusal with its code, and the commands to run next."""
        end = last_event(out)
        refusals = end.get("refusals", [])
        msg = "\n".join(
            [one["text"] for one in refusals] or [err.strip() or f"aligntool ended with exit code {code}"]
        )
        self._module.fail_json(
            msg=msg,
            rc=code,
            refusals=refusals,
            next=end.get("next", "").splitlines(),
            stderr=err,
            changed=code == STOPPED,
        )

    def recover(self, status, words, back):
        """Finish the change that `status` reports as unfinished, or undo it if `back`, and return the
        module's result.

        `words` identify the change on the command line.
        """
        how = "rolled back" if back else "finished"
        if status["total"] is None:  # an array
            done = f"at step {status['number'] or 1}"
        else:
            done = f"{status['done']} of {status['total']} bytes moved"
        before, after = f"{status['goal']}: {status['state']}, {done}\n", f"{status['goal']}: {how}\n"
        result = {"changed": True, "diff": {"before": before, "after": after}}
        if not self._module.check_mode:
            result["sentences"] = self.change("rollback" if back else "resume", *words)["sentences"]
        return result

    def table(self, disk):
        """Return the partition table of a disk as lines."""
        report = self.document("audit", disk, "--fail-on", "never")[0]
        found = [part for one in report["disks"] for part in one["partitions"]]
        return lines((part["number"], part["start"], part["length"], part["type_name"]) for part in found)


def last_event(out):
    """Return the `end` of a stream of events, or {} if the command stopped before it."""
    found = {}
    for line in out.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "end":
            found = event
    return found


def codes(out):
    """Return the codes of the refusals at the end of a stream of events."""
    return [one["code"] for one in last_event(out).get("refusals", ())]


def lines(rows):
    """Return partitions, given as (number, start, length, what), as text for a diff."""
    return "".join(
        f"{number}  start {start} B  length {length} B  {what}\n" for number, start, length, what in rows
    )


def places(plan, which):
    """Return the partitions of a plan as text, "before" or "after" it."""
    return lines(
        (place["number"], place[which]["start"], place[which]["length"], place["what"])
        for place in plan["places"]
        if place[which]
    )


def flags(params, names):
    """Return the command-line options for the given parameters; a list gives one option for each element."""
    words = []
    for name in names:
        value, option = params[name], "--" + name.replace("_", "-")
        if isinstance(value, bool):
            words += [option] if value else []
        elif value is not None:
            for each in value if isinstance(value, list) else [value]:
                words += [option, str(each)]
    return words


def shown(plan):
    """Return the parts of a plan that are of use in a play."""
    return {name: plan[name] for name in ("goal", "places", "attention", "notes")}
