"""``understudy cluster show``: the cluster as one node sees it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from understudy.cli.status import Place, instance_option, readiness_of, server_option, token_file_option, url_option
from understudy.cli.tables import console
from understudy.cli.terminal import echo
from understudy.texts import printable


@click.group()
def cluster() -> None:
    """Look at the cluster of a node."""


@cluster.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def show(instance: Path | None, server: str | None, url: str | None, token_file: Path | None, as_json: bool) -> None:
    """Show members, connections to them, discovered nodes, colocated backups, bridges, queues of other members,
    redistribution and message groups.

    Exit codes: 0 shown; 3 not reachable.
    """
    found: dict[str, Any] = Place.of(instance, url, token_file, server).ask("/api/v1/cluster")
    if as_json:
        echo(json.dumps(found, indent=2))
        return
    if found["state"] is None:
        echo("the node has no cluster-connection")
    for title, columns, rows in _tables(found):
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(printable("-" if value is None else str(value))) for value in row))
        console().print(table)


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
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def check(instances: tuple[Path, ...], urls: tuple[str, ...], token_file: Path | None, as_json: bool) -> None:
    """Ask each peer for problems of the cluster, and compare the answers.

    A member with an address that a peer does not reach is named by that peer. Exit codes: 0 no problem; 1 problems were
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


_Rows = list[list[object]]


def _bridges(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and rows of the table of bridges."""
    columns = ["bridge", "queue", "to", "state", "waiting", "unconfirmed", "acknowledged", "error"]
    keys = ["name", "queue", "target", "state", "waiting", "unconfirmed", "acknowledged", "error"]
    return columns, [[each[key] for key in keys] for each in found["bridges"]]


def _unreached(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and rows of the table of members with an address that this node does not reach."""
    columns = ["node id", "advertises", "attempts", "error"]
    keys = ("node_id", "address", "failures", "error")
    return columns, [[each[key] for key in keys] for each in found["unreached"]]


def _connections(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and rows of the table of cluster connections."""
    columns = ["cluster-connection", "address", "balancing", "hops", "members", "queues", "waiting", "acknowledged"]
    rows: _Rows = [
        [
            each["name"],
            each["address"] or "all",
            each["message_load_balancing"],
            each["max_hops"],
            len(each["nodes"]),
            each["remote_queues"],
            each["waiting"],
            each["acknowledged"],
        ]
        for each in found["connections"]
    ]
    return columns, rows


def _redistribution(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and rows of the table of queues whose messages move."""
    columns = ["queue", "state", "moved"]
    return columns, [[each[key] for key in columns] for each in found["redistribution"]]


def _grouping(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and row of the table of the grouping handler."""
    handler = found.get("grouping")
    keys = ["name", "type", "groups", "waiting", "proposals", "freed", "ungrouped"]
    return ["grouping-handler", *keys[1:]], [] if handler is None else [[handler[key] for key in keys]]


def _colocated(found: dict[str, Any]) -> tuple[list[str], _Rows]:
    """Columns and rows of the table of colocated backups: the own one, then those hosted here."""
    columns = ["server", "backup of", "hosted by", "state", "acceptors"]
    colocated = found["colocated"]
    if colocated is None:
        return columns, []
    own: _Rows = [[None, "this node", colocated["host"], colocated["request"], None]] if colocated["request"] else []
    hosted: _Rows = [
        [each["server"], each["node_id"], "this node", each["state"], ", ".join(each["acceptors"])]
        for each in colocated["hosted"]
    ]
    return columns, own + hosted


def _tables(found: dict[str, Any]) -> list[tuple[str, list[str], _Rows]]:
    """Title, columns and rows of each table; empty ones are left out."""
    tables: list[tuple[str, list[str], _Rows]] = [
        (
            "members",
            ["node id", "active", "passive", "group", "this node"],
            [
                [each["node_id"], each["primary"], each["backup"], each["backup_group"], "yes" if each["own"] else ""]
                for each in found["members"]
            ],
        ),
        (
            "connections to members",
            ["to", "node id", "state", "failures"],
            [[each["to"], each["node_id"], each["state"], each["failures"]] for each in found["links"]],
        ),
        ("members that were never reached", *_unreached(found)),
        ("colocated backups", *_colocated(found)),
        ("cluster connections", *_connections(found)),
        ("bridges", *_bridges(found)),
        (
            "queues of other members",
            ["queue", "address", "node id", "hops", "connected", "consumers", "filter"],
            [
                [each[key] for key in ("queue", "address", "node_id", "distance", "connected", "consumers", "filter")]
                for each in found["remote_queues"]
            ],
        ),
        ("redistribution", *_redistribution(found)),
        ("message groups", *_grouping(found)),
        (
            "discovered nodes",
            ["group", "node id", "connectors", "from", "age"],
            [
                [
                    group["name"],
                    each["node_id"],
                    ", ".join(each["connectors"]),
                    each["source"],
                    f"{each['age_ms']} ms",
                ]
                for group in found["discovery"]
                for each in group["entries"]
            ],
        ),
        (
            "discovery groups",
            ["group", "at", "state", "datagrams", "duplicate node ids", "error"],
            [
                [each["name"], each["at"], each["state"], _counts(each["outcomes"]), each["duplicates"], each["error"]]
                for each in found["discovery"]
            ],
        ),
        (
            "broadcast groups",
            ["group", "at", "state", "connectors", "sent", "failed", "error"],
            [
                [
                    each["name"],
                    each["at"],
                    each["state"],
                    ", ".join(each["connectors"]),
                    each["sent"],
                    each["failed"],
                    each["error"],
                ]
                for each in found["broadcasts"]
            ],
        ),
    ]
    return [each for each in tables if each[2]]


def _counts(outcomes: dict[str, int]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count) or "none"
