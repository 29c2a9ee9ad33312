"""``understudy cluster show``: the cluster as one node sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.bridge import BRIDGES
from understudy.cli.status import Place, instance_option, readiness_of, server_option, token_file_option, url_option
from understudy.cli.tables import Column, Kind, Row, Table, View, json_option, view_options
from understudy.cli.terminal import echo
from understudy.texts import printable

_NODE_ID: Final = Column("node_id", Kind.NAME, "Node id of the member.")
_STATE: Final = Column("state", Kind.NAME, "State of the machine (docs/machines).")
_ERROR: Final = Column("error", Kind.TEXT, "Last error.")

TABLES: Final = (
    Table(
        "members",
        (
            _NODE_ID,
            Column("primary", Kind.NAME, "Address of the active node.", title="active"),
            Column("backup", Kind.NAME, "Address of the passive node.", title="passive"),
            Column("backup_group", Kind.NAME, "Its group-name.", title="group"),
            Column("own", Kind.NAME, "Whether it is this node.", title="this node"),
        ),
        title="members",
    ),
    Table(
        "links",
        (
            Column("to", Kind.NAME, "Address of the member."),
            _NODE_ID,
            _STATE,
            Column("failures", Kind.NUMBER, "Failed attempts since the last connection."),
        ),
        title="connections to members",
    ),
    Table(
        "unreached",
        (
            _NODE_ID,
            Column("address", Kind.NAME, "Address that it advertises.", title="advertises"),
            Column("failures", Kind.NUMBER, "Attempts to connect.", title="attempts"),
            _ERROR,
        ),
        title="members that were never reached",
    ),
    Table(
        "colocated",
        (
            Column("server", Kind.NAME, "Name of the server in this process."),
            Column("backup_of", Kind.NAME, "Node id of its primary."),
            Column("hosted_by", Kind.NAME, "Node id of the member that hosts it."),
            _STATE,
            Column("acceptors", Kind.NAME, "Its addresses once it is active."),
        ),
        title="colocated backups",
    ),
    Table(
        "connections",
        (
            Column("name", Kind.NAME, "Name of the cluster connection.", title="cluster-connection"),
            Column(
                "address",
                Kind.NAME,
                "Prefixes of its addresses.",
                value=lambda connection: connection["address"] or "all",
            ),
            Column("message_load_balancing", Kind.NAME, "When messages go to other members.", title="balancing"),
            Column("max_hops", Kind.NUMBER, "Members that a message passes at most.", title="hops"),
            Column(
                "nodes",
                Kind.NUMBER,
                "Members that get its messages.",
                title="members",
                value=lambda connection: len(connection["nodes"]),
            ),
            Column("remote_queues", Kind.NUMBER, "Queues of other members that it knows.", title="queues"),
            Column("waiting", Kind.NUMBER, "Messages that wait for other members."),
            Column("acknowledged", Kind.NUMBER, "Messages that other members have confirmed.", optional=True),
        ),
        title="cluster connections",
    ),
    BRIDGES,
    Table(
        "remote-queues",
        (
            Column("queue", Kind.NAME, "Name of the queue."),
            Column("address", Kind.NAME, "Its address."),
            _NODE_ID,
            Column("distance", Kind.NUMBER, "Hops to it; 1: a direct neighbour has it.", title="hops"),
            Column("connected", Kind.NAME, "Whether it is reported at present."),
            Column("consumers", Kind.NUMBER, "Its consumers."),
            Column("filter", Kind.NAME, "Its filter."),
        ),
        title="queues of other members",
    ),
    Table(
        "redistribution",
        (
            Column("queue", Kind.NAME, "Queue whose messages move."),
            _STATE,
            Column("moved", Kind.NUMBER, "Messages since the activation."),
        ),
        title="redistribution",
    ),
    Table(
        "grouping",
        (
            Column("name", Kind.NAME, "Name of the grouping handler.", title="grouping-handler"),
            Column("type", Kind.NAME, "LOCAL or REMOTE."),
            Column("groups", Kind.NUMBER, "Message groups that have a queue."),
            Column("waiting", Kind.NUMBER, "Sessions that wait for a decision."),
            Column("proposals", Kind.NUMBER, "Proposals sent or received."),
            Column("freed", Kind.NUMBER, "Groups that have lost their queue."),
            Column("ungrouped", Kind.NUMBER, "Messages that were routed without their group."),
        ),
        title="message groups",
    ),
    Table(
        "discovered",
        (
            Column("group", Kind.NAME, "The discovery group."),
            _NODE_ID,
            Column("connectors", Kind.NAME, "Its addresses."),
            Column("source", Kind.NAME, "Sender of the broadcast.", title="from"),
            Column("age_ms", Kind.DURATION, "Time since its last broadcast.", title="age"),
        ),
        title="discovered nodes",
    ),
    Table(
        "discovery",
        (
            Column("name", Kind.NAME, "The discovery group.", title="group"),
            Column("at", Kind.NAME, "How broadcasts travel."),
            _STATE,
            Column(
                "outcomes", Kind.TEXT, "Datagrams by result.", "datagrams", lambda group: _counts(group["outcomes"])
            ),
            Column("duplicates", Kind.NUMBER, "Broadcasts of one node id by two.", title="duplicate node ids"),
            _ERROR,
        ),
        title="discovery groups",
    ),
    Table(
        "broadcasts",
        (
            Column("name", Kind.NAME, "The broadcast group.", title="group"),
            Column("at", Kind.NAME, "How broadcasts travel."),
            _STATE,
            Column("connectors", Kind.NAME, "Addresses that it broadcasts."),
            Column("sent", Kind.NUMBER, "Broadcasts sent."),
            Column("failed", Kind.NUMBER, "Broadcasts that could not be sent."),
            _ERROR,
        ),
        title="broadcast groups",
    ),
)


@click.group()
def cluster() -> None:
    """Look at the cluster of a node."""


@cluster.command()
@instance_option
@server_option
@url_option
@token_file_option
@view_options(*TABLES, watch=True)
def show(instance: Path | None, server: str | None, url: str | None, token_file: Path | None, view: View) -> None:
    """Show members, connections to them, discovered nodes, colocated backups, bridges, queues of other members,
    redistribution and message groups. Empty tables are left out.

    \b
    Example: understudy cluster show --table members --watch

    Exit codes: 0 shown; 3 not reachable.
    """
    place = Place.of(instance, url, token_file, server)
    view.repeat(lambda: _show(place.ask("/api/v1/cluster"), view))


def _show(found: dict[str, Any], view: View) -> None:
    if view.table is None and view.as_json:
        view.value(found)
        return
    if found["state"] is None and not view.as_json:
        echo("the node has no cluster-connection")
    for table in TABLES:
        rows = ROWS_OF[table.name](found)
        if view.table == table.name or (view.table is None and rows):
            view.rows(table, rows)


@cluster.command("check")
@click.option(
    "--instance",
    "instances",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Instance directory of a peer; may be given several times.",
)
@click.option("--url", "urls", multiple=True, help="Management URL of a peer; may be given several times.")
@token_file_option
@json_option
def check(instances: tuple[Path, ...], urls: tuple[str, ...], token_file: Path | None, as_json: bool) -> None:
    """Ask each peer for problems of the cluster, and compare the answers.

    A member with an address that a peer does not reach is named by that peer.

    \b
    Example: understudy cluster check --url http://127.0.0.1:8161 --url http://127.0.0.1:8162

    Exit codes: 0 no problem; 1 problems were
    found; 2 usage; 3 a peer is not reachable.
    """
    places = [Place.of(each, None, token_file) for each in instances] + [
        Place.of(None, each, token_file) for each in urls
    ]
    places = places or [Place.of(None, None, token_file)]
    seen: dict[str, dict[str, Any]] = {each.url: each.ask("/api/v1/cluster") for each in places}
    problems = [problem for peer, found in seen.items() for problem in _problems(peer, found)] + _disagreements(seen)
    for place in places:
        ready = readiness_of(place)
        if not ready["ready"]:
            problems.append(
                _problem(place.url, "not-ready", f"{ready['state']}: {ready['reason']}", state=ready["state"])
            )
    if as_json:
        echo(json.dumps({"ok": not problems, "peers": list(seen), "problems": problems}, indent=2))
    else:
        for each in problems:
            echo(printable(f"{each['peer']}: {each['code']}: {each['text']}"))
        echo(f"{len(seen)} peers, {len(problems)} problems")
    if problems:
        raise SystemExit(1)


def _problem(peer: str, code: str, text: str, **values: object) -> dict[str, object]:
    return {"peer": peer, "code": code, "text": text, "values": values}


def _problems(peer: str, found: dict[str, Any]) -> list[dict[str, object]]:
    """Problems that one peer sees."""
    problems = [
        _problem(
            peer,
            "member-not-reached",
            f"member {each['node_id']} advertises {each['address']}, which this peer does not reach"
            f" ({each['failures']} attempts, last error: {each['error']})",
            **each,
        )
        for each in found["unreached"]
    ]
    problems += [
        _problem(peer, "bridge-not-connected", f"bridge {each['name']} to {each['target']}: {each['error']}",
                 bridge=each["name"], target=each["target"], error=each["error"])
        for each in found["bridges"]
        if each["state"] in ("WAITING", "FAILED")
    ]  # fmt: skip
    problems += [
        _problem(
            peer, "duplicate-node-id", f"group {each['name']} heard a node id from two senders", group=each["name"]
        )
        for each in found["discovery"]
        if each["duplicates"]
    ]
    problems += [
        _problem(
            peer,
            "pairs-without-group-name",
            f"the replicated pair of node {each} and that of this peer have no group-name: a backup of one may become"
            " the replica of the other",
            node_id=each,
        )
        for each in found["ungrouped_pairs"]
    ]
    if found["state"] is None:
        problems.append(_problem(peer, "no-cluster", "the peer has no cluster-connection"))
    return problems


def _disagreements(seen: dict[str, dict[str, Any]]) -> list[dict[str, object]]:
    """Members that one peer knows as active and another one does not."""
    active = {
        peer: {each["node_id"] for each in found["members"] if each["primary"] is not None}
        for peer, found in seen.items()
        if found["state"] is not None
    }
    known = set().union(*active.values())
    return [
        _problem(peer, "member-not-known", f"member {node_id} is known to other peers only", node_id=node_id)
        for peer, members in active.items()
        for node_id in sorted(known - members)
    ]


def _colocated(found: dict[str, Any]) -> list[Row]:
    """The own backup, then those hosted here."""
    colocated = found["colocated"]
    if colocated is None:
        return []
    own: Row = {"backup_of": "this node", "hosted_by": colocated["host"], "state": colocated["request"]}
    hosted: list[Row] = [
        {**each, "backup_of": each["node_id"], "hosted_by": "this node"} for each in colocated["hosted"]
    ]
    return [own, *hosted] if colocated["request"] else hosted


def _counts(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count) or "none"


ROWS_OF: Final[dict[str, Callable[[dict[str, Any]], list[Row]]]] = {
    "members": lambda found: found["members"],
    "links": lambda found: found["links"],
    "unreached": lambda found: found["unreached"],
    "colocated": _colocated,
    "connections": lambda found: found["connections"],
    "bridges": lambda found: found["bridges"],
    "remote-queues": lambda found: found["remote_queues"],
    "redistribution": lambda found: found["redistribution"],
    "grouping": lambda found: [] if found.get("grouping") is None else [found["grouping"]],
    "discovered": lambda found: [
        {**each, "group": group["name"]} for group in found["discovery"] for each in group["entries"]
    ],
    "discovery": lambda found: found["discovery"],
    "broadcasts": lambda found: found["broadcasts"],
}
"""The rows of each table in the answer of a node."""
