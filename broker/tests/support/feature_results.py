"""Results of interop tests: feature, direction and outcome, kept in one JSON file over several runs.

A pytest plugin. Directions follow from the test's file; of our own client's tests from the broker they
ran against. Outcomes are kept per test, so a run of some tests leaves those of the others; tests that
are gone are forgotten when their whole file is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

JAVA, COMMAND_LINE = "Artemis Java client -> Understudy", "artemis command line -> Understudy"
OURS = {"artemis": "Understudy client -> Artemis", "understudy": "Understudy client -> Understudy"}
SAME_PACKETS = "the same packets -> both"
BETWEEN_NODES = "Understudy node <-> Artemis node"
AMQP091 = "AMQP 0-9-1 client -> Understudy"
_COMMAND_LINE = re.compile(r"(^|_)(cli|commands?|command_line)(_|$)")


def direction(file_stem: str, node_id: str) -> str:
    """The two sides of a test."""
    if file_stem.startswith("test_our_client"):
        kinds = re.search(r"\[(.*)\]", node_id)
        return OURS["artemis" if kinds and "artemis" in kinds[1].split("-") else "understudy"]
    if file_stem.startswith(("test_pika", "test_amqp091", "test_celery", "test_mixed_drill")):
        return AMQP091
    if file_stem.startswith("test_mixed"):
        return BETWEEN_NODES
    if _COMMAND_LINE.search(file_stem.removeprefix("test_")):
        return COMMAND_LINE
    return SAME_PACKETS if file_stem == "test_differential" or file_stem.endswith("_side_by_side") else JAVA


class FeatureResults:
    """Collects the outcomes of interop tests in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[str, dict[str, Any]] = {}
        self._collected: set[str] = set()
        self._whole_files = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        # before anything is deselected
        self._collected = {item.nodeid for item in items}
        self._whole_files = not any("::" in argument for argument in config.args)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report: pytest.TestReport = yield
        features = [str(marker.args[0]) for marker in item.iter_markers("feature")]
        if features and (report.when == "call" or report.outcome != "passed"):
            known = self._results.get(item.nodeid)
            if known is None or known["outcome"] == "passed":
                self._results[item.nodeid] = {
                    "features": features,
                    "direction": direction(item.path.stem, item.nodeid),
                    "outcome": report.outcome,
                    "reason": _reason(report),
                }
        return report

    def pytest_sessionfinish(self) -> None:
        if not self._results:
            return
        kept: dict[str, Any] = json.loads(self._path.read_text()) if self._path.exists() else {}
        if self._whole_files:
            files = {node_id.partition("::")[0] for node_id in self._collected}
            kept = {
                node_id: result
                for node_id, result in kept.items()
                if node_id in self._collected or node_id.partition("::")[0] not in files
            }
        kept.update(self._results)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")


def _reason(report: pytest.TestReport) -> str:
    if report.outcome == "passed":
        return ""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    text = str(report.longrepr).strip().splitlines()
    return next((line[1:].strip() for line in text if line.startswith("E ")), text[-1] if text else "")[:300]
