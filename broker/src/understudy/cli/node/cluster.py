"""``understudy cluster show``: the cluster as one node sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click

from understudy.cli.messages.bridge import BRIDGES
from understudy.cli.node.status import (
    Place,
    instance_option,
    readiness_of,
    server_option,
    token_file_option,
    url_option,
)
from understudy.cli.tables import Column, Kind, Row, Table, View, figure_column, json_option, view_options
from understudy.cli.terminal import Commands, echo
from understudy.errors import Unreachable
from understudy.management.model.cluster import (
    Broadcast,
    ClusterConnection,
    Discovery,
    Entry,
    Grouping,
    Hosted,
    Link,
    Member,
    Redistribution,
    RemoteQueue,
    Unreached,
)
from understudy.texts import counted, printable

TABLES: Final = (
    Table(
        "members",
        (
            figure_column(Member, "node_id"),
            figure_column(Member, "primary", "active"),
            figure_column(Member, "backup", "passive"),
            figure_column(Member, "backup_group", "group"),
            figure_column(Member, "own", "this node"),
        ),
        title="members",
    ),
    Table(
        "links",
        (
            figure_column(Link, "to"),
            figure_column(Link, "node_id"),
            figure_column(Link, "state"),
            figure_column(Link, "failures"),
        ),
        title="connections to members",
    ),
    Table(
        "unreached",
        (
            figure_column(Unreached, "node_id"),
            figure_column(Unreached, "address", "advertises"),
            figure_column(Unreached, "failures", "attempts"),
            figure_column(Unreached, "error", kind=Kind.TEXT),
        ),
        title="members that were never reached",
    ),
    Table(
        "colocated",
        (
            figure_column(Hosted, "server"),
            Column("backup_of", Kind.NAME, "Node id of its primary."),
            Column("hosted_by", Kind.NAME, "Node id of the member that hosts it."),
            figure_column(Hosted, "state"),
            figure_column(Hosted, "acceptors"),
        ),
        title="colocated backups",
    ),
    Table(
        "connections",
        (
            figure_column(ClusterConnection, "name", "cluster-connection"),
            figure_column(ClusterConnection, "address", value=lambda row: row["address"] or "all"),
            figure_column(ClusterConnection, "message_load_balancing", "balancing"),
            figure_column(ClusterConnection, "max_hops", "hops", optional=True),
            figure_column(ClusterConnection, "nodes", "members", kind=Kind.NUMBER, value=lambda row: len(row["nodes"])),
            figure_column(ClusterConnection, "remote_queues", "queues"),
            figure_column(ClusterConnection, "waiting"),
            figure_column(ClusterConnection, "acknowledged", optional=True),
        ),
        title="cluster connections",
    ),
    BRIDGES,
    Table(
        "remote-queues",
        (
            figure_column(RemoteQueue, "queue"),
            figure_column(RemoteQueue, "address"),
            figure_column(RemoteQueue, "node_id"),
            figure_column(RemoteQueue, "distance", "hops"),
            figure_column(RemoteQueue, "connected"),
            figure_column(RemoteQueue, "consumers"),
            figure_column(RemoteQueue, "filter"),
        ),
        title="queues of other members",
    ),
    Table(
        "redistribution",
        (
            figure_column(Redistribution, "queue"),
            figure_column(Redistribution, "state"),
            figure_column(Redistribution, "moved"),
        ),
        title="redistribution",
    ),
    Table(
        "grouping",
        (
            figure_column(Grouping, "name", "grouping-handler"),
            figure_column(Grouping, "type"),
            figure_column(Grouping, "groups"),
            figure_column(Grouping, "waiting"),
            figure_column(Grouping, "proposals"),
            figure_column(Grouping, "freed", optional=True),
            figure_column(Grouping, "ungrouped", optional=True),
        ),
        title="message groups",
    ),
    Table(
        "discovered",
        (
            Column("group", Kind.NAME, "The discovery group."),
            figure_column(Entry, "node_id"),
            figure_column(Entry, "connectors"),
            figure_column(Entry, "source", "from"),
            figure_column(Entry, "age_ms", "age"),
        ),
        title="discovered nodes",
    ),
    Table(
        "discovery",
        (
            figure_column(Discovery, "name", "group"),
            figure_column(Discovery, "at"),
            figure_column(Discovery, "state"),
            figure_column(
                Discovery, "outcomes", "datagrams", kind=Kind.TEXT, value=lambda row: _counts(row["outcomes"])
            ),
            figure_column(Discovery, "duplicates", "duplicate node ids"),
            figure_column(Discovery, "error", kind=Kind.TEXT),
        ),
        title="discovery groups",
    ),
    Table(
        "broadcasts",
        (
            figure_column(Broadcast, "name", "group"),
            figure_column(Broadcast, "at"),
            figure_column(Broadcast, "state"),
            figure_column(Broadcast, "connectors"),
            figure_column(Broadcast, "sent"),
            figure_column(Broadcast, "failed"),
            figure_column(Broadcast, "error", kind=Kind.TEXT),
        ),
        title="broadcast groups",
    ),
)


@click.group(cls=Commands)
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

    A member with an address that a peer does not reach is named by that peer. Without options all nodes of the context
    are asked.

    \b
    Example: understudy cluster check --url http://127.0.0.1:8161 --url http://127.0.0.1:8162

    Exit codes: 0 no problem; 1 problems were found; 2 usage; 3 a peer is not reachable, the others were asked.
    """
    missing = list[dict[str, object]]()
    places = list[Place]()
    for each in instances:
        try:
            places.append(Place.of(each, None, token_file))
        except Unreachable as error:
            # the others are asked nevertheless
            missing.append(_problem(str(each), "not-reachable", str(error)))
    places += [place for each in urls for place in Place.all_of(None, each, token_file)]
    places = places if places or missing else Place.all_of(None, None, token_file)
    seen: dict[str, dict[str, Any]] = {}
    for place in places:
        try:
            seen[place.url] = place.ask("/api/v1/cluster")
        except Unreachable as error:
            missing.append(_problem(place.url, "not-reachable", str(error)))
    problems = [problem for peer, found in seen.items() for problem in _problems(peer, found)] + _disagreements(seen)
    problems += missing
    for place in places:
        if place.url not in seen:
            continue
        ready = readiness_of(place)
        if not ready["ready"]:
            problems.append(
                _problem(place.url, "not-ready", f"{ready['state']}: {ready['reason']}", state=ready["state"])
            )
    if as_json:
        echo(json.dumps({"ok": not problems, "peers": list(seen), "problems": problems}, indent=2))
    else:
        for problem in problems:
            echo(printable(f"{problem['peer']}: {problem['code']}: {problem['text']}"))
        echo(f"{counted(len(seen), 'node')} asked, {counted(len(problems), 'problem')}")
    if problems:
        raise SystemExit(3 if missing else 1)


def _problem(peer: str, code: str, text: str, **values: object) -> dict[str, object]:
    return {"peer": peer, "code": code, "text": text, "values": values}


def _problems(peer: str, found: dict[str, Any]) -> list[dict[str, object]]:
    """Problems of the pair or cluster that one peer reports."""
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
    """Members that one peer counts as active and another one does not."""
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
    """The node's own backup, then the backups that it hosts."""
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
