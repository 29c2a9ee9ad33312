"""The node that a command asks: options that name it, and the active node of a pair where only that one can answer."""

from __future__ import annotations

import inspect
import urllib.parse
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

from understudy.cli.node.status import (
    Place,
    instance_option,
    readiness_of,
    server_option,
    shown_peer,
    token_file_option,
    url_option,
)
from understudy.errors import NotActive

F = TypeVar("F", bound=Callable[..., Any])

#: Items of one page that is asked for: as many as the node gives.
PAGE_ITEMS: Final = 500


def node_options(command: F) -> F:
    """``--instance``, ``--server``, ``--url`` and ``--token-file``; the command gets the node as the argument
    ``place``.
    """

    @wraps(command)
    def with_place(
        instance: Path | None, server: str | None, url: str | None, token_file: Path | None, **options: Any
    ) -> Any:
        return command(place=Place.of(instance, url, token_file, server), **options)

    for option in (token_file_option, url_option, server_option, instance_option):
        with_place = option(with_place)
    with_place.__doc__ = inspect.cleandoc(command.__doc__ or "")
    return with_place  # type: ignore[return-value]  # click adds options to the function and returns it


def active_node_options(command: F) -> F:
    """Options of the connection to a node, for a command that only an active node can answer.

    Raises:
        NotActive: the node is not active; the error says which one is, as far as the node knows it.
    """

    @node_options
    @wraps(command)
    def with_active_place(place: Place, **options: Any) -> Any:
        require_active(place)
        return command(place=place, **options)

    return with_active_place  # type: ignore[return-value]  # as above


def require_active(place: Place) -> None:
    """Check that a node is active. Raises NotActive with the address of the node that is."""
    state = readiness_of(place)["state"]
    if state == "active":
        return
    node = place.ask("/api/v1/node")
    peer = node["peer"]
    elsewhere = ""
    if peer is not None and state == "passive":
        elsewhere = (
            f"; the active node is {shown_peer(peer)}: give its management URL or instance, or a context of both nodes"
        )
    raise NotActive(f"{node['name']} ({place.url}) is {state}{elsewhere}")


def invoke(place: Place, resource: str, operation: str, *parameters: object) -> Any:
    """The result of a declared operation.

    Args:
        resource: ``broker``, ``queue.NAME``, ``address.NAME`` and so on.
        parameters: Parameters as they are declared.
    """
    body = {"resource": resource, "operation": operation, "parameters": list(parameters)}
    return place.ask("/api/v1/invoke", body=body)["result"]


def item(place: Place, collection: str, name: str) -> dict[str, Any]:
    """One item of a collection. Raises BrokerError: there is none of the name."""
    found: dict[str, Any] = place.ask(f"/api/v1/{collection}/{quoted(name)}")
    return found


def items(place: Place, collection: str, *conditions: str, sort: str | None = None) -> list[dict[str, Any]]:
    """All items of a collection that meet the conditions of its page, in the order of a field."""
    return list(_items(place, collection, conditions, sort))


def _items(place: Place, collection: str, conditions: tuple[str, ...], sort: str | None) -> Iterator[dict[str, Any]]:
    number = 1
    while True:
        query = [("page", str(number)), ("size", str(PAGE_ITEMS)), *(("filter", each) for each in conditions)]
        if sort is not None:
            query.append(("sort", sort))
        page = place.ask(f"/api/v1/{collection}?{urllib.parse.urlencode(query)}")
        yield from page["items"]
        if len(page["items"]) < PAGE_ITEMS:
            return
        number += 1


def quoted(name: str) -> str:
    """A name as a segment of a path."""
    return urllib.parse.quote(name, safe="", errors="replace")
