"""Parameters of an operation in the log: no secret is shown."""

from __future__ import annotations

from understudy.management.operations.audit import shown_parameters
from understudy.management.operations.table import operation, text


def shown(name: str, value: object) -> str:
    return shown_parameters(operation("do", lambda control: None, "Do.", text(name), returns=None), [value])


def test_values_are_shown_by_name() -> None:
    assert shown("filter", "colour = 'red'") == "filter=colour = 'red'"
    assert shown("count", None) == "count=null"
    assert shown("long", "x" * 300) == f"long={'x' * 200}…"


def test_secrets_are_masked_wherever_they_are() -> None:
    assert shown("password", "secret") == "password=***"
    assert "hidden" not in shown("bridge", '{"name": "b", "password": "hidden", "inner": [{"authToken": "hidden"}]}')
    assert '"name": "b"' in shown("bridge", '{"name": "b", "password": "hidden"}')
    assert "hidden" not in shown("bridge", '{"name": "b", "password": "hidden"'), "JSON that is cut off"
    assert "hidden" not in shown("url", "tcp://user:hidden@host:1")
    assert "hidden" not in shown("url", "tcp://host:1?password=hidden")


def test_a_long_text_with_an_address_is_not_searched() -> None:
    assert shown("url", "tcp://user:hidden" + "x" * 65_000) == "url=*** (65017 characters)"
