"""``understudy ha``: the node that takes over from another one, the loss then, and the action to take."""

from __future__ import annotations

from typing import Any

import click

from understudy.cli.managing.places import node_options
from understudy.cli.node.status import Place, configuration_text, readiness_of
from understudy.cli.tables import View, view_options


@click.command()
@node_options
@view_options(watch=True)
def ha(place: Place, view: View) -> None:
    """Say in one sentence which node takes over, the loss if the active node fails now, and the action to take.

    A second line tells of changes of the management CLI, and of changes that wait for a restart or reload.

    The node needs no token for it. `status`, /health/ready, the metric understudy_protected and the log have the same
    answer.

    \b
    Example: understudy ha --url http://127.0.0.1:8161

    Exit codes: 0 another node takes over, or this passive one does; 1 no node takes over; 3 not reachable.
    """

    def show() -> bool:
        found = readiness_of(place)
        if view.as_json:
            names = ("state", "protected", "protection", "overrides", "pending_count")
            view.value({name: found[name] for name in names})
        else:
            view.page.sentence(sentence_of(found))
            count = found["pending_count"]
            pending = f"changed elements of the configuration ({count})" if count else ""
            changes = configuration_text(found["overrides"], pending)
            if changes is not None:
                view.page.sentence(changes)
        return bool(found["protected"])

    if not view.repeat(show):
        raise SystemExit(1)


def sentence_of(ready: dict[str, Any]) -> str:
    """The answer of a node as a line that begins with its state."""
    return f"{ready['state']}: {ready['protection']}"
