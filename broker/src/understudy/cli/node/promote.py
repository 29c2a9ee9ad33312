"""``understudy promote``: let the data of a node that waits count as the newest, by the management API of that node.

For the case that the node with newer data is lost for good. Not here: moving the active role between nodes that run
(``handing_over``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from understudy.cli.node.status import Place, instance_option, server_option, token_file_option, url_option
from understudy.cli.terminal import echo
from understudy.errors import BrokerError


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--accept-data-loss", is_flag=True, required=True, help="Messages that only another node has are lost.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def promote(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    accept_data_loss: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Let a passive node of a replicated pair activate although another node may have newer data.

    For the case that the other node or its data is lost for good. If that node returns, it becomes the replica and its
    files are kept in oldreplica.N. The promotion is recorded in promotions.json beside the lock files, and in status.
    Exit codes: 0 the node activates; 1 it is active, an active node was found, its data is incomplete, or it was not
    confirmed; 3 not reachable.

    \b
    Example: understudy promote --instance /srv/broker --accept-data-loss
    """
    place = Place.only(instance, url, token_file, server)
    node: dict[str, Any] = place.ask("/api/v1/node")
    ha = node["ha"]
    if ha["state"] != "passive":
        raise BrokerError(f"the node is {ha['state']}, not passive")
    if not yes:
        echo(f"{node['name']} (node id {node['node_id']})", err=True)
        if ha["waiting_because"]:
            echo(ha["waiting_because"], err=True)
        click.confirm("Messages that only another node has are lost. Promote this node?", abort=True, err=True)
    record: dict[str, Any] = place.ask("/api/v1/node/promote", body={"accept_data_loss": True})
    if as_json:
        echo(json.dumps(record))
        return
    newest = "unknown" if record["newest_known"] is None else record["newest_known"]
    echo(f"promoted: activation sequence {record['before']} became {record['sequence']}; newest known: {newest}")
