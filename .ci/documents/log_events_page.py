"""The page of all events that a node logs, made from the calls in the sources.

``python -m documents.log_events_page docs/operate/log-events.md``. The id of an event is that of
``runtime.base.logs``; meaning and action of those that ask for something are in ``MEANINGS``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import understudy
from understudy.dataclass import dataclass
from understudy.runtime.base.logs import event_id

#: Folders whose log lines are not those of a node.
_OTHERS: Final = ("client", "spark", "testing", "tools")
_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "exception")
#: Meaning and action of an event by the beginning of its text.
MEANINGS: Final[dict[str, tuple[str, str]]] = {
    "took over from": (
        "The active node failed or was stopped, and this backup serves. Values: the other node, epoch, duration.",
        "Start the other node again; `understudy ha` says when the pair is complete.",
    ),
    "serves again instead of": ("The primary has its place again after a failback.", "None."),
    "gave the service back to": ("This backup has yielded to its primary.", "None."),
    "this node is not protected": (
        "For five seconds no other node may take over. The line names the loss and the action.",
        "Start the other node, or look at its log.",
    ),
    "this node is protected again": ("Another node may take over.", "None."),
    "backup disconnected": (
        "The connection of the backup has ended: it was stopped, has failed, or has just become active itself.",
        "None in a planned switch; else look at the backup.",
    ),
    "member of the cluster lost": ("The connection to another member has ended.", "Look at that member."),
    "this backup would not take over": (
        "The backup follows, and something prevents a take-over; `reason` names it.",
        "Correct the reason; `/health/ready` of the backup is 503 until then.",
    ),
    "not active": ("A replica waits, because its data may be old.", "Start the other node, or `understudy promote`."),
    "replica in sync": ("The replica has a complete copy and may take over.", "None."),
    "replica lost": ("The connection to the replica has ended.", "Look at the replica."),
    "slow replica dropped": ("The replica did not keep up within call-timeout.", "Look at its disk and network."),
    "the node goes on without a replica": ("Confirmations do not wait for a copy any more.", "Start the replica."),
    "the pair runs on the promise of the replica": (
        "The lock manager does not answer; the replica has promised not to take over.",
        "Repair the lock manager: a failure of this node now ends the service.",
    ),
    "there is a possible split brain": (
        "Two nodes are active with the same node id.",
        "Stop one of them at once, and compare the stores (`understudy data compare`).",
    ),
    "producers blocked": ("An address has reached its limit.", "Consume, or raise max-size-bytes."),
    "producers unblocked": ("The address has space again.", "None."),
    "the journal waits for disk space": (
        "The disk of the store is full; nothing is confirmed.",
        "Free space; the node goes on by itself.",
    ),
    "the journal resumes": ("The disk has space again.", "None."),
    "disk full: the reserve was given up": ("The reserve for an activation was used.", "Free space."),
    "certificate expires soon": ("A certificate of an acceptor ends within 30 days, or has ended.", "Renew it."),
    "protocol not served": (
        "A client speaks another protocol than CORE. It got an answer in its language.",
        "Configure the client for CORE, or the right port.",
    ),
    "session refused": ("A login or a session was refused; `reason` says why.", "Check user, password and roles."),
    "connection refused: too many": ("connections-allowed of the acceptor is reached.", "Close clients, or raise it."),
    "management token refused": ("A request had a wrong token.", "Check the file of the token of the caller."),
    "managed": ("Management changed something: user, peer, operation and parameters.", "None."),
    "slow consumer": ("A consumer takes fewer messages than slow-consumer-threshold.", "Look at the consumer."),
    "message dropped: it was delivered too often": (
        "There is no dead letter address.",
        "Set dead-letter-address for the address.",
    ),
    "damaged record set aside": ("A record of the log does not fit its checksum.", "docs/build/reliability.md."),
    "a file of the store does not fit its checksum": (
        "A file is damaged.",
        "Look at the disk; docs/build/reliability.md.",
    ),
    "node ended": ("The node has ended because of an error.", "Correct the error, and start it again."),
    "node did not start": ("The node cannot start; `error` says why.", "Correct the error, and start it again."),
    "stuck": ("A thread or the loop did not answer in time.", "Look at the disk; send the line to the developers."),
    "configuration": ("An element of broker.xml has no effect or another one than in Artemis.", "Read `detail`."),
    "changes in the configuration that need a restart": ("They are not applied yet.", "Restart the node."),
    "changed configuration not applied": ("broker.xml cannot be used.", "Correct it; the former one is in force."),
    "persistence is off": ("Messages are lost when the process ends.", "None if that is intended."),
    "SYNC IS OFF": ("Confirmed messages are lost with the power.", "Set journal-datasync to true."),
}


#: Those of ``MEANINGS`` that are not whole texts.
_BEGINNINGS: Final = frozenset(MEANINGS) - {"configuration", "managed", "not active", "node ended", "replica lost"}


@dataclass(frozen=True, slots=True)
class Event:
    """An event that the sources log."""

    id: str
    level: str
    text: str
    component: str

    @property
    def meaning(self) -> tuple[str, str]:
        """Meaning and action; empty if the text says all."""
        for beginning, found in MEANINGS.items():
            if self.text == beginning or (beginning in _BEGINNINGS and self.text.startswith(beginning)):
                return found
        return "", ""


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
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "log" and node.args):
            continue
        level = "error" if node.func.attr == "exception" else node.func.attr
        for text in _texts(node.args[0]):
            yield Event(_given_id(node) or event_id(text), level, text, component)


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
        "where Artemis has the same event, else a number that is made from the text. `%s` is a value. Events without a",
        "meaning here are explained by their text and the fields after it",
        "([ADR 0154](../adr/0154-logs-that-people-read.md)).",
    ]
    for level, title in (
        ("critical", "Critical"),
        ("error", "Errors"),
        ("warning", "Warnings"),
        ("info", "Information"),
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
