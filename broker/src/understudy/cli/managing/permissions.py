"""``understudy permission check``: whether a user may do something with an address, and because of which role."""

from __future__ import annotations

import json
from typing import Any

import click

from understudy.cli.managing.places import active_node_options, invoke, items
from understudy.cli.node.status import Place
from understudy.cli.tables import json_option
from understudy.cli.terminal import Commands, echo
from understudy.errors import ManagementError
from understudy.terms import Permission


@click.group(cls=Commands)
def permission() -> None:
    """Ask which permissions a user has."""


@permission.command()
@active_node_options
@click.argument("user")
@click.argument("operation", type=click.Choice([each.value for each in Permission]))
@click.argument("address")
@json_option
def check(place: Place, user: str, operation: str, address: str, as_json: bool) -> None:
    """Say whether USER may do OPERATION with ADDRESS, by the security settings in force.

    Users of a directory are not known to the node before their login.

    \b
    Example: understudy permission check alice send orders

    Exit codes: 0 allowed; 1 not allowed, or no such user; 3 not active or not reachable.
    """
    found = [each for each in items(place, "users", f"name={user}") if each["name"] == user]
    if not found:
        raise ManagementError(f"the files of the broker have no user {user!r}")
    roles: list[str] = found[0]["roles"]
    granted: list[dict[str, Any]] = json.loads(invoke(place, "broker", "getRolesAsJSON", address))
    by = sorted(each["name"] for each in granted if each["name"] in roles and each.get(operation))
    if as_json:
        echo(json.dumps({"user": user, "operation": operation, "address": address, "allowed": bool(by), "roles": by}))
    elif by:
        echo(f"{user} may {operation} {address}: by role {', '.join(by)}")
    else:
        may = sorted(each["name"] for each in granted if each.get(operation))
        echo(
            f"{user} may not {operation} {address}: its roles are {', '.join(roles) or 'none'};"
            f" allowed are {', '.join(may) or 'no roles'}"
        )
    if not by:
        raise SystemExit(1)
