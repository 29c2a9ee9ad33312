"""The page of the parameters of clusters: every one has a test, and every test names one that exists."""

from __future__ import annotations

from pathlib import Path

from documents.cluster_parameters import page, parameters, proofs

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parents[1] / "docs" / "operate" / "clusters.md"


def test_every_parameter_with_an_effect_has_a_test() -> None:
    tests = proofs(TESTS)
    rows = [row for each in parameters().values() for row in each]
    assert [row.name for row in rows if row.name not in tests and not row.without_test] == []


def test_tests_name_parameters_that_exist() -> None:
    known = {row.name for each in parameters().values() for row in each}
    assert {name: tests for name, tests in proofs(TESTS).items() if name not in known} == {}


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(TESTS), "run make docs"
