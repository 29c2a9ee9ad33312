"""The servers of a process, for management (ADR 0075)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server that the broker.xml of the process names."""

    name: str
    state: str
    """One of ``controls.STATES``."""
    http_url: str | None
    """URL of its management; None: it has none."""


class ServersView(Protocol):
    """The servers of the process of a node."""

    def facts(self) -> Sequence[ServerFacts]:
        """All of them, also those that have ended; that of ``core`` first."""
        ...

    def start(self, name: str) -> None:
        """Start one that has ended.

        Raises:
            ManagementError: there is none of the name, it has not ended, or the process is being stopped.
            BrokerError: its configuration cannot be used.
        """
        ...


def servers_json(servers: Sequence[ServerFacts]) -> dict[str, object]:
    """Body of GET /api/v1/servers."""
    return {"servers": [asdict(each) for each in servers]}


def parse_start(body: object) -> str:
    """The name in the body of POST /api/v1/servers/start. Raises ValueError."""
    if not isinstance(body, dict) or set(body) != {"name"} or not isinstance(body["name"], str):
        raise ValueError('{"name": NAME} is expected')
    return body["name"]
