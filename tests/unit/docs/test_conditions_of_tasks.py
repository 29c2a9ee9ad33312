"""Goal: every condition of a playbook, a role or a scenario is a comparison or a test, which is what Ansible accepts.

``a ~ b is search('x')`` binds to the second string only: the condition is then a text, and Ansible ends with an error
when the task runs, which may be for the first time on a booted host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment, nodes

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(
    path
    for folder in ("molecule", "playbooks", "roles", "tests/lab/playbooks", "tests/integration/playbooks")
    for path in (ROOT / folder).rglob("*.yml")
)
CONDITIONS = ("when", "failed_when", "changed_when", "until", "that")
JINJA = Environment()
TEXTS = (nodes.Concat, nodes.Add, nodes.List, nodes.Dict, nodes.TemplateData)


def conditions(value: object) -> Iterator[str]:
    """The texts of all conditions below a value of a file."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in CONDITIONS:
                yield from (str(text) for text in (each if isinstance(each, list) else [each]))
            else:
                yield from conditions(each)
    elif isinstance(value, list):
        for each in value:
            yield from conditions(each)


def operands(node: nodes.Node) -> Iterator[nodes.Node]:
    """What decides: the operands of ``and``, ``or`` and ``not``, and both results of an inline ``if``."""
    if isinstance(node, nodes.And | nodes.Or):
        yield from operands(node.left)
        yield from operands(node.right)
    elif isinstance(node, nodes.Not):
        yield from operands(node.node)
    elif isinstance(node, nodes.CondExpr):
        yield from (found for each in (node.expr1, node.expr2) if each is not None for found in operands(each))
    else:
        yield node


def joined(condition: str) -> bool:
    """Whether a condition is a text that is put together from parts."""
    output = JINJA.parse("{{ (" + condition + ") }}").body[0]
    assert isinstance(output, nodes.Output)
    return any(isinstance(each, TEXTS) for each in operands(output.nodes[0]))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_condition_is_a_text(path: Path) -> None:
    for condition in conditions(yaml.load(path.read_text(), Loader=yaml.SafeLoader)):
        assert not joined(condition), condition


def test_a_condition_that_binds_to_one_of_two_texts_is_found() -> None:
    assert joined("answer.rc == 0 or answer.stdout ~ answer.stderr is not search('login')")
    assert not joined("answer.rc == 0 or (answer.stdout ~ answer.stderr) is not search('login')")
    assert not joined("not ready and state in ['active', 'passive']")


def messages(value: object) -> Iterator[str]:
    """The texts of ``fail_msg`` below a value of a file."""
    if isinstance(value, dict):
        yield from (str(each) for key, each in value.items() if key == "fail_msg")
        for each in value.values():
            yield from messages(each)
    elif isinstance(value, list):
        for each in value:
            yield from messages(each)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_message_of_an_assertion_is_a_bare_variable(path: Path) -> None:
    """Ansible refuses a message that is a list of numbers, and then hides which condition was not met."""
    for message in messages(yaml.load(path.read_text(), Loader=yaml.SafeLoader)):
        assert not re.fullmatch(r"\{\{ *\w+ *\}\}", message.strip()), message
