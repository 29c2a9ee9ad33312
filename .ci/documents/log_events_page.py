"""The page of all events that a node logs, made from the calls in the sources.

``python -m documents.log_events_page docs/operate/log-events.md``. The id of an event is that of
``runtime.base.logs``; meaning and action of each event are in ``log_events.toml``.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import understudy
from understudy.dataclass import dataclass
from understudy.runtime.base.logs import event_id

#: Folders whose log lines are not those of a node.
_OTHERS: Final = ("client", "spark", "testing", "tools")
_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_METHODS: Final = (*_LEVELS, "exception", "log")
#: Meaning and action of each event, by its text.
MEANINGS: Final[dict[str, dict[str, str]]] = tomllib.loads(Path(__file__).with_name("log_events.toml").read_text())


@dataclass(frozen=True, slots=True)
class Event:
    """An event that the sources log."""

    id: str
    level: str
    text: str
    component: str

    @property
    def meaning(self) -> tuple[str, str]:
        """Meaning and action.

        Raises:
            KeyError: log_events.toml has no such event.
        """
        found = MEANINGS[self.text]
        return found["meaning"], found["action"]


@cache
def events() -> list[Event]:
    """All events, by component and text; one that is logged in several places is listed once."""
    root = Path(understudy.__file__).parent
    found: dict[str, Event] = {}
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if relative.parts[0] not in _OTHERS:
            component = ".".join(relative.with_suffix("").parts)
            for each in _calls(ast.parse(path.read_text()), component):
                found.setdefault(each.text, each)
    return sorted(found.values(), key=lambda each: (each.component.partition(".")[0], each.text.lower()))


def _calls(tree: ast.Module, component: str) -> Iterator[Event]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "log" and node.args):
            continue
        level = _chosen_level(tree) if node.func.attr == "log" else node.func.attr.replace("exception", "error")
        # the first argument of ``log.log`` is the level
        for text in _texts(node.args[node.func.attr == "log"]):
            yield Event(_given_id(node) or event_id(text), level, text, component)


def _chosen_level(tree: ast.Module) -> str:
    """The most severe of the levels that a module assigns to ``level``, for its call of ``log.log``."""
    values = [each.value for each in ast.walk(tree) if isinstance(each, ast.Assign) and _is_level(each.targets)]
    names = {each.attr.lower() for value in values for each in ast.walk(value) if isinstance(each, ast.Attribute)}
    return max(names & set(_LEVELS), key=_LEVELS.index)


def _is_level(targets: list[ast.expr]) -> bool:
    return [each.id for each in targets if isinstance(each, ast.Name)] == ["level"]


def _texts(argument: ast.expr) -> Iterator[str]:
    """The texts that an argument may be: a constant, or one of two."""
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        yield argument.value
    elif isinstance(argument, ast.IfExp):
        yield from _texts(argument.body)
        yield from _texts(argument.orelse)


def _given_id(call: ast.Call) -> str | None:
    """The code of Artemis among the fields of a call."""
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                named = isinstance(key, ast.Constant) and key.value == "id" and isinstance(value, ast.Constant)
                if named and isinstance(value, ast.Constant) and str(value.value).startswith("AMQ"):
                    return str(value.value)
    return None


def page() -> str:
    """The page."""
    lines = [
        "# Log events",
        "",
        "Generated from the sources by `make docs`. Each line of the log has the id of its event: the code of Artemis",
        "where Artemis has the same event, else a number that is made from the text. `%s` is a value. An action",
        '"None." says that there is nothing to do ([ADR 0154](../adr/0154-logs-that-people-read.md)).',
    ]
    for level, title in (
        ("critical", "Critical"),
        ("error", "Errors"),
        ("warning", "Warnings"),
        ("info", "Information"),
        ("debug", "Only with `--log-level debug`; `understudy events` has those that a node keeps"),
    ):
        chosen = [each for each in events() if each.level == level]
        lines += ["", f"## {title}", "", "| id | event | meaning | action | logger |", "|---|---|---|---|---|"]
        for each in chosen:
            meaning, action = each.meaning
            text = each.text.replace("\n", " ").replace("|", "\\|")
            lines.append(f"| {each.id} | {text} | {meaning} | {action} | `understudy.{each.component}` |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
