"""Files for administrators: alert rules, a dashboard, systemd units, the catalogue of the journal."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aligntool.render.prometheus import METRICS
from tests.audit.machines.captured import HERE as MACHINES
from tests.conftest import run
from tests.run_aligntool import run_aligntool

PACKAGING = Path(__file__).parent.parent / "packaging"
RULES = PACKAGING / "prometheus" / "alerts.yml"
DASHBOARD = PACKAGING / "grafana" / "dashboard.json"
MACHINE = MACHINES / "sata-usb-and-sd-card.tar.xz"


def metrics_in(text: str) -> set[str]:
    return set(re.findall(r"\baligntool_\w+", text))


@pytest.mark.needs_tools("promtool")
def test_the_alert_rules_fire_exactly_where_they_should() -> None:
    assert "8 rules found" in run("promtool", "check", "rules", RULES)
    said = run("promtool", "test", "rules", RULES.with_name("alerts_test.yml"))
    assert "SUCCESS" in said


def test_every_alert_has_a_test_and_uses_existing_metrics() -> None:
    rules, tests = RULES.read_text(), RULES.with_name("alerts_test.yml").read_text()
    alerts = re.findall(r"- alert: (\w+)", rules)
    assert len(alerts) == 8
    for alert in alerts:  # once on a machine without problems, and once on one where it fires
        assert len(re.findall(rf"alertname: {alert}\b", tests)) >= 2, alert
        assert f"| `{alert}` |" in (PACKAGING.parent / "docs" / "monitoring.md").read_text()
    assert metrics_in(rules) <= set(METRICS)
    assert metrics_in(tests) <= set(METRICS)


def expressions() -> list[str]:
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    assert metrics_in(DASHBOARD.read_text()) == set(METRICS)
    assert len(expressions()) > len(METRICS) - 3


@pytest.mark.needs_tools("promtool")
def test_prometheus_reads_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{index}", "expr": expr} for index, expr in enumerate(expressions())]
    file = tmp_path / "queries.yml"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run("promtool", "check", "rules", file)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places)) and max(x for x, _ in places) == 23  # Grafana has 24 columns


# The service. The audit reads disks, so it runs as root, without any privilege that it does not need.

UNITS = PACKAGING / "systemd"


@pytest.mark.needs_tools("systemd-analyze")
def test_systemd_rates_the_exposure_of_the_service_at_most_3() -> None:
    unit = UNITS / "aligntool-audit.service"
    said = run("systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", unit)  # in tenths
    exposure = re.search(r"Overall exposure level for aligntool-audit.service: ([0-9.]+)", said)
    assert exposure and float(exposure[1]) <= 3.0


@pytest.mark.needs_tools("systemd-analyze")
def test_systemd_verifies_the_units_without_warnings(tmp_path: Path) -> None:
    """With an installed program at the expected path; verify writes its warnings to standard error."""
    for unit in UNITS.glob("aligntool-audit.*"):
        text = unit.read_text().replace("/usr/bin/aligntool", str(Path(sys.executable).with_name("aligntool")))
        (tmp_path / unit.name).write_text(text)
    for name in ("aligntool-audit.service", "aligntool-audit.timer"):
        words = ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        own = [line for line in (done.stdout + done.stderr).splitlines() if "aligntool" in line]
        assert (done.returncode, own) == (0, [])


def test_the_service_runs_a_valid_command(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ExecStart=(.+)$", (UNITS / "aligntool-audit.service").read_text(), re.MULTILINE)
    path, *words = shlex.split(line)
    assert path == "/usr/bin/aligntool"
    there = tmp_path / Path(words[-1]).name
    done = run_aligntool(*words[:-1], there, "--sysroot", MACHINE)
    assert (done.returncode, done.stderr) == (0, "") and there.read_text().startswith("# HELP")
    assert words[-1] in (PACKAGING.parent / "docs" / "monitoring.md").read_text()
