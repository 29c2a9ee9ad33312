"""``understudy failover``, ``failback`` and ``activate``: move the active role between the nodes of a pair.

The first two use the management API of the active node, the last one that of a backup whose primary was stopped. Each
waits until a node serves again, and says which one, after how long, and the next step. Not here: ``stop --failover``,
which needs no backup.
"""

from __future__ import annotations

import shlex
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.node.status import (
    STOP_POLL_MS,
    Place,
    instance_option,
    readiness_of,
    server_option,
    serving,
    shown_peer,
    token_file_option,
    url_option,
)
from understudy.cli.tables import View
from understudy.cli.tables.view import json_option
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, CallTimedOut, Unreachable

_timeout = click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), default=60, show_default=True, help="Seconds."
)
#: States of a node that has handed over and goes on.
_PASSIVE: Final = ("passive", "isolated")
#: Limit of one attempt to connect to a node that may serve.
_CONNECT_S: Final = 2.0


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--force", is_flag=True, help="Also if no backup is known to the node.")
@_timeout
@json_option
def failover(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    force: bool,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Stop the active node and let its peer take over, whatever failover-on-shutdown says.

    Returns when the node has ended and its peer serves, and says the next step. Of several nodes (a context, or
    --url with both) the other one is asked whether it serves; otherwise this is known when its acceptor takes
    connections from here.

    Exit codes: 0 the peer serves, or with --force no peer is known and the node has ended; 1 it is not active, or no
    peer is known to it (see --force); 3 not reachable; 4 no end of the node, or no service of the peer, in --timeout.

    \b
    Example: understudy failover --instance /srv/broker
    """
    switch = _Switch(Place.all_of(instance, url, token_file, server), timeout_s)
    node = _active(switch.place)
    if node["peer"] is None and not force:
        raise BrokerError(
            "no peer is known to the node: nothing would take over",
            hint="start the other node, `understudy ha` says when it is ready; --force stops this one in any case",
        )
    switch.request("/api/v1/invoke", {"resource": "broker", "operation": "forceFailover"})
    state = switch.wait_for_state()
    served = None if node["peer"] is None else switch.wait_until_served(node)
    start = f"start {node['name']} again, so that the pair is complete"
    if state != "stopped":
        advice = f"{node['name']} is {state} and goes on"
    elif instance is not None:
        advice = f"{start}: {shlex.join(['understudy', 'run', '--instance', str(instance)])}, or its service"
    else:
        advice = f"{start}: `understudy run` on its host, or its service"
    _report(node, state, served, advice, as_json)


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@_timeout
@json_option
def failback(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Let the active backup yield to its primary, which has to be running. Works also without allow-failback.

    Returns when the backup is passive, or has ended if restart-backup is false, and the primary serves, which is found
    out as by `failover`. Exit codes: 0 it does; 1 it is not an active backup, or its primary does not wait; 3 not
    reachable; 4 it is still active, or the primary does not serve, after --timeout.

    \b
    Example: understudy failback --instance /srv/broker
    """
    switch = _Switch(Place.all_of(instance, url, token_file, server), timeout_s)
    node = _active(switch.place)
    switch.request("/api/v1/invoke", {"resource": "broker", "operation": "failback"})
    state = switch.wait_for_state()
    served = None if node["peer"] is None else switch.wait_until_served(node)
    if state == "stopped":
        advice = f"start {node['name']} again, so that the pair is complete (restart-backup is false)"
    else:
        advice = f"{node['name']} is {state}; `understudy ha` says when it can take over again"
    _report(node, state, served, advice, as_json)


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@_timeout
@json_option
def activate(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Let the backup of a shared store activate although its primary was stopped cleanly.

    After a clean stop of a primary without failover-on-shutdown its backup stays passive. This is for a primary that
    does not come back soon: the lock of the store shows that no other node is active, and no message is lost. When the
    primary returns, the backup yields to it as after any take-over.

    Returns when the backup is active. Exit codes: 0 it is; 1 it is no passive backup, or activates by itself; 3 not
    reachable; 4 it is not active after --timeout.

    \b
    Example: understudy activate --instance /srv/broker
    """
    switch = _Switch([Place.only(instance, url, token_file, server)], timeout_s)
    node: dict[str, Any] = switch.place.ask("/api/v1/node")
    switch.request("/api/v1/node/activate", {})
    state = switch.wait_for_state(("active",))
    if state != "active":
        raise BrokerError(f"{node['name']} has ended before it was active")
    served = {"name": node["name"], "connector": None, "took_ms": switch.took_ms}
    _report(
        node, state, served, "start the primary again when it can serve; it then gets the active role back", as_json
    )


class _Switch:
    """A change of the active node that one node is asked for."""

    def __init__(self, places: Sequence[Place], timeout_s: float) -> None:
        """Raises Unreachable: no place of several answers."""
        self.place = serving(places)
        self._others = [each for each in places if each.url != self.place.url]
        self._timeout_s = timeout_s
        self._since_s = 0.0

    def request(self, path: str, body: dict[str, str]) -> None:
        """Ask the node for the change. Raises BrokerError: it refuses."""
        self._since_s = time.monotonic()
        self.place.ask(path, body=body)

    @property
    def took_ms(self) -> int:
        """Time since the request."""
        return round((time.monotonic() - self._since_s) * 1000)

    def wait_for_state(self, states: Sequence[str] = _PASSIVE) -> str:
        """Wait until the node is in one of the states or has ended. Returns its state. Raises CallTimedOut."""
        while True:
            try:
                state = str(self.place.ask("/api/v1/node")["ha"]["state"])
            except Unreachable:
                return "stopped"
            if state in states:
                return state
            self._pause(f"{self.place.url}: the node is still {state}", None)

    def wait_until_served(self, node: dict[str, Any]) -> dict[str, Any]:
        """Wait until the other node of the pair serves.

        Args:
            node: The former active node, as it was before.

        Returns:
            Name and connector of the other node, and the time without this being known.

        Raises:
            CallTimedOut: it does not serve in time.
        """
        peer = node["peer"]
        while not (any(map(_is_active, self._others)) if self._others else _accepts(peer["connector"])):
            self._pause(
                f"{node['name']} does not serve any more, and the {peer['role']} {shown_peer(peer)} does not serve yet,"
                " as far as can be seen from here",
                "look at it with `understudy ha --url`, and at its log",
            )
        return {"name": peer.get("name"), "connector": peer["connector"], "took_ms": self.took_ms}

    def _pause(self, text: str, hint: str | None) -> None:
        if time.monotonic() - self._since_s > self._timeout_s:
            raise CallTimedOut(text, hint=hint)
        time.sleep(STOP_POLL_MS / 1000)


def _is_active(place: Place) -> bool:
    with suppress(BrokerError):
        return bool(readiness_of(place)["state"] == "active")
    return False


def _accepts(connector: str) -> bool:
    """Whether the node at ``host:port`` takes connections: only an active node has its acceptors open."""
    host, _, port = connector.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError:
        return False
    return True


def _active(place: Place) -> dict[str, Any]:
    node: dict[str, Any] = place.ask("/api/v1/node")
    if node["ha"]["state"] != "active":
        peer, hint = node["peer"], None
        if peer is not None:
            hint = f"ask the active node {shown_peer(peer)}: give its --url or --instance, or a context of both nodes"
        raise BrokerError(f"{node['name']} ({place.url}) is {node['ha']['state']}, not active", hint=hint)
    return node


def _report(node: dict[str, Any], state: str, served: dict[str, Any] | None, advice: str, as_json: bool) -> None:
    if as_json:
        values = {"name": node["name"], "node_id": node["node_id"], "state": state, "serving": served, "next": advice}
        View(as_json=True).value(values)
        return
    own = "" if state == "active" else f"; {node['name']} {'has ended' if state == 'stopped' else f'is {state}'}"
    if served is None:
        echo(f"no node is known to serve{own}")
    else:
        name, connector = served["name"], served["connector"]
        who = name or connector
        if name is not None and connector is not None:
            who = f"{name} ({connector})"
        echo(f"{who} serves, {served['took_ms']} ms after the request{own}")
    echo(f"next: {advice}")
