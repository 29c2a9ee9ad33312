"""Alert rules and dashboards: every series exists in the metrics of a node, and every alert has a test.

``promtool`` of Debian's package ``prometheus`` checks the syntax and runs the tests of the alerts.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from documents.dashboards import COLUMNS, DASHBOARDS, dashboard, text
from documents.monitoring_page import page
from support.architecture import ROOT
from support.slices import finish
from understudy.cli.main import cli
from understudy.runtime.management.scrape import exposition, families
from understudy.testing.fake_node import complete_view

MONITORING: Final = ROOT / "monitoring"
RULES: Final = MONITORING / "prometheus/understudy.rules.yml"
RULE_TESTS: Final = MONITORING / "prometheus/understudy.rules.test.yml"
PROMTOOL: Final = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is missing: install Debian's package prometheus (.ci/system-packages does)"
)

#: Labels that Prometheus adds to each series of a target.
OF_TARGET: Final = {"job", "instance"}
_SELECTOR: Final = re.compile(r"\b(understudy_[a-z0-9_]+)(?:\{([^}]*)\})?")


def exposed_text() -> str:
    """Metrics of a node that has every series, and of its process."""
    return exposition(finish(families(complete_view()))).decode()


def exposed() -> dict[str, set[str]]:
    """Name -> labels of each series that a node may have."""
    found: dict[str, set[str]] = {}
    for line in exposed_text().splitlines():
        if not line.startswith("#"):
            name, _, labels = line.rpartition(" ")[0].partition("{")
            found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = dashboard(name)["panels"]
    return found


def expressions() -> dict[str, str]:
    """Every expression of the rules and of the dashboards, by its place."""
    found = {rule["alert"]: rule["expr"] for rule in alerts()}
    for name in DASHBOARDS:
        for panel in panels(name):
            for target in panel["targets"]:
                found[f"{name}: {panel['title']} {target['refId']}"] = target["expr"]
        for variable in dashboard(name)["templating"]["list"]:
            if variable["type"] == "query":
                found[f"{name}: variable {variable['name']}"] = variable["query"]["query"]
    return found


def test_every_figure_of_the_model_with_a_metric_has_a_series() -> None:
    model = ROOT / "broker/src/understudy/management/model"
    declared = {
        found[2] + ("_total" if found[1] == "total" else "")
        for path in model.glob("*.py")
        for found in re.finditer(r"\b(metric|total)=\"(understudy_\w+)\"", path.read_text())
    }
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exposed()}
    assert len(declared) > 50
    assert declared - shown - exposed().keys() == set()


def test_every_series_of_rules_and_dashboards_exists_with_its_labels() -> None:
    known = exposed()
    faults = []
    for place, expression in expressions().items():
        used = _SELECTOR.findall(expression)
        assert used or place == "UnderstudyDown", place
        for name, selector in used:
            unknown = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)) - known.get(name, set()) - OF_TARGET
            if name not in known or unknown:
                faults.append(f"{place}: {name} {sorted(unknown)}")
    assert faults == []


def test_an_unknown_series_is_found() -> None:
    assert "understudy_no_such_series" not in exposed()
    assert {"understudy_failovers_total", "understudy_loop_lag_seconds_bucket", "understudy_process_open_fds"} <= set(
        exposed()
    )
    assert exposed()["understudy_login_failures_total"] == {"reason"}


# --- alerts ------------------------------------------------------------------------------------------


def test_every_alert_has_a_meaning_and_the_commands_that_show_and_repair() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names)) > 25
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule
        assert rule["annotations"].keys() == {"summary", "description", "show", "repair"}, rule
        assert rule["annotations"]["description"].endswith("."), rule


def named_commands() -> list[str]:
    texts = [rule["annotations"][key] for rule in alerts() for key in ("show", "repair")]
    return sorted({each for text in texts for each in re.findall(r"understudy ((?:[a-z][a-z-]* ?)+)", text)})


@pytest.mark.parametrize("words", named_commands())
def test_the_commands_of_annotations_exist(words: str) -> None:
    """A text may go on after the command."""
    found: click.Command = cli
    context = click.Context(cli)
    for number, word in enumerate(words.split()):
        following = found.get_command(context, word) if isinstance(found, click.Group) else None
        if following is None:
            assert number, f"no command {word!r}"
            assert not isinstance(found, click.Group), f"no command {words!r}"
            return
        found = following


def test_every_alert_has_a_test_in_which_it_fires() -> None:
    tests = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    firing = {case["alertname"] for case in cases if case.get("exp_alerts")}
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    names = {rule["alert"] for rule in alerts()}
    assert names == firing == silent


@needs_promtool
def test_the_rules_are_valid_and_their_tests_pass() -> None:
    for command in (("check", "rules", str(RULES)), ("test", "rules", str(RULE_TESTS))):
        done = promtool(*command)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_rule_that_never_fires_fails_its_test(tmp_path: Path) -> None:
    broken = RULES.read_text().replace("expr: understudy_store_full == 1", "expr: understudy_store_full == 2")
    assert broken != RULES.read_text()
    (tmp_path / RULES.name).write_text(broken)
    # the tests in which it fires: those of the other alerts take most of the time
    tests = yaml.safe_load(RULE_TESTS.read_text())
    tests["tests"] = [
        test
        for test in tests["tests"]
        if any(case["alertname"] == "UnderstudyDiskFull" and case.get("exp_alerts") for case in test["alert_rule_test"])
    ]
    (tmp_path / RULE_TESTS.name).write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", str(tmp_path / RULE_TESTS.name))
    assert done.returncode != 0
    assert "UnderstudyDiskFull" in done.stdout + done.stderr


@needs_promtool
def test_every_expression_of_a_dashboard_is_valid(tmp_path: Path) -> None:
    rules = [
        {"record": f"check:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (place, expression) in enumerate(expressions().items())
        if ": variable" not in place
    ]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@needs_promtool
def test_the_metrics_keep_the_conventions_of_prometheus() -> None:
    done = promtool("check", "metrics", text=exposed_text())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=120, check=False)


def test_the_tables_of_the_page_are_up_to_date() -> None:
    path = ROOT / "docs/operate/monitoring.md"
    assert path.read_text() == page(path.read_text()), "run `make docs`"
    assert all(
        f"`{name}`" in path.read_text() for name in exposed() if name.endswith("_total") and "process" not in name
    )


# --- dashboards --------------------------------------------------------------------------------------


def test_the_dashboards_of_the_repository_are_up_to_date() -> None:
    files = {path.name: path.read_text() for path in (MONITORING / "grafana").iterdir()}
    assert files == {f"understudy-{name}.json": text(name) for name in DASHBOARDS}, "run `make docs`"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_the_fields_that_an_import_needs(name: str) -> None:
    found = json.loads(text(name))
    assert "id" not in found, "an import gives the number"
    assert re.fullmatch(r"[a-z-]{1,40}", found["uid"])
    assert {"title", "schemaVersion", "tags", "time", "templating", "panels"} <= found.keys()
    variables = {each["name"]: each for each in found["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert variables["job"]["datasource"] == variables["instance"]["datasource"] == source
    for panel in found["panels"]:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"] == source
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"]
        assert all(target["datasource"] == source and "$NODES" not in target["expr"] for target in panel["targets"])
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_panels_of_a_dashboard_do_not_overlap(name: str) -> None:
    cells: set[tuple[int, int]] = set()
    assert len({panel["id"] for panel in panels(name)}) == len(panels(name))
    for panel in panels(name):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own
