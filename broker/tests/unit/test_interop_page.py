"""docs/use/interop.md and docs/use/client-url.md are those of this source tree."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from documents import client_reference, interop_matrix
from support.feature_results import AMQP091, BETWEEN_NODES, COMMAND_LINE, JAVA, OURS, SAME_PACKETS, direction

ROOT = Path(__file__).parents[3]
TESTS = sorted((ROOT / "broker" / "tests" / "interop").glob("test_*.py"))


def features(path: Path) -> set[str]:
    """The features that the tests of one file name."""
    return {
        str(node.args[0].value)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "feature"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def test_the_page_has_every_feature_that_tests_name_and_no_other() -> None:
    named = set().union(*(features(path) for path in TESTS))
    rows = set(
        re.findall(r"^\| (?!feature )([^|]+?) \|", (ROOT / "docs" / "use" / "interop.md").read_text(), re.MULTILINE)
    )
    assert rows == named, "run make interop"


def test_every_interop_test_names_a_feature() -> None:
    for path in TESTS:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert any("feature" in ast.unparse(each) for each in node.decorator_list), f"{path.name}: {node.name}"


def test_directions() -> None:
    assert direction("test_artemis_clients", "x") == JAVA
    assert direction("test_artemis_command_line", "x") == COMMAND_LINE
    assert direction("test_differential", "x") == SAME_PACKETS
    assert direction("test_management_side_by_side", "x") == SAME_PACKETS
    assert direction("test_mixed_cluster", "x") == BETWEEN_NODES
    assert direction("test_pika", "x") == AMQP091
    assert direction("test_pika_sessions", "x") == AMQP091
    assert direction("test_command_line_side_by_side", "x") == COMMAND_LINE
    assert direction("test_our_client", "a::b[artemis-auto]") == OURS["artemis"]
    assert direction("test_our_client_queues", "a::b[understudy]") == OURS["understudy"]
    assert set(interop_matrix.DIRECTIONS) == {JAVA, COMMAND_LINE, *OURS.values(), SAME_PACKETS, BETWEEN_NODES, AMQP091}


def test_cells_say_what_the_tests_said() -> None:
    def result(outcome: str, reason: str = "") -> dict[str, object]:
        return {"features": ["large"], "direction": JAVA, "outcome": outcome, "reason": reason}

    page = interop_matrix.page({"a::x": result("passed"), "a::y": result("skipped", "no TLS")})
    assert "| large | partly (1) |  |  |  |  |" in page
    assert "| large | yes (1) |" in interop_matrix.page({"a::x": result("passed")})
    assert f"- large, {JAVA}: no TLS" in page
    assert "**fails** (1 of 2)" in interop_matrix.page({"x": result("passed"), "y": result("failed", "E")})
    assert "| large | no |" in interop_matrix.page({"x": result("skipped", "not there")})


def test_the_url_reference_is_current() -> None:
    assert (ROOT / "docs" / "use" / "client-url.md").read_text() == client_reference.page(), "run make docs"
