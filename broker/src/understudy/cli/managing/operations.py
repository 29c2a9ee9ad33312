"""``understudy operation``: the declared operations of a node, and calls of any of them."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from understudy.cli.managing.places import active_node_options, invoke, items, node_options
from understudy.cli.node.status import Place
from understudy.cli.tables import Column, Kind, Table, View, figure_column, view_options
from understudy.cli.terminal import Commands, echo
from understudy.management.model.operations import Operation

OPERATIONS: Final = Table(
    "operations",
    (
        figure_column(Operation, "resource"),
        figure_column(Operation, "name"),
        figure_column(Operation, "effect", optional=True),
        figure_column(Operation, "doc", "meaning", kind=Kind.TEXT),
        # last: without a terminal a column is as wide as its longest value
        Column(
            "parameters", Kind.NAME, "Types and names.",
            value=lambda row: ", ".join(f"{each['type']} {each['name']}" for each in row["parameters"]),
        ),
    ),
)  # fmt: skip


@click.group(cls=Commands)
def operation() -> None:
    """List the operations of management, and call any of them."""


@operation.command("list")
@node_options
@click.option("--resource", help="Only those of broker, address, queue, and so on.")
@view_options(OPERATIONS)
def list_operations(place: Place, resource: str | None, view: View) -> None:
    """Show the operations and attributes of a node.

    \b
    Example: understudy operation list --resource queue --filter name=*Messages
    """
    conditions = () if resource is None else (f"resource={resource}",)
    view.rows(OPERATIONS, items(place, "operations", *conditions))


@operation.command("invoke")
@active_node_options
@click.argument("resource")
@click.argument("name")
@click.argument("parameters", nargs=-1)
def invoke_operation(place: Place, resource: str, name: str, parameters: tuple[str, ...]) -> None:
    """Call the operation NAME of RESOURCE: broker, queue.QUEUE, address.ADDRESS, and so on.

    Parameters are texts, numbers, true, false, null or a JSON object, as `operation list` declares them. The result is
    printed as JSON.

    \b
    Example: understudy operation invoke queue.orders moveMessages null parked

    Exit codes: 0 done; 1 refused, with the reason; 3 not active or not reachable.
    """
    found = invoke(place, resource, name, *_parameters(place, resource, name, parameters))
    echo(json.dumps(_unfolded(found), indent=2))


@operation.command()
@active_node_options
@click.argument("resource")
@click.argument("attribute")
def get(place: Place, resource: str, attribute: str) -> None:
    """Read an attribute of RESOURCE.

    \b
    Example: understudy operation get broker NodeID
    """
    body = {"resource": resource, "attribute": attribute}
    echo(json.dumps(_unfolded(place.ask("/api/v1/invoke", body=body)["result"]), indent=2))


def _parameters(place: Place, resource: str, name: str, texts: tuple[str, ...]) -> list[Any]:
    """The values of texts by the declared form of the operation that they fit, the one with the fewest texts if several
    do; the texts if there is none, which the node refuses with the forms that exist.
    """
    kind = resource.partition(".")[0]
    forms = items(place, "operations", f"resource={kind}", f"name={name}")
    for form in sorted(forms, key=lambda form: sum(each["type"] == "String" for each in form["parameters"])):
        if len(form["parameters"]) == len(texts):
            try:
                return [_value(text, each) for text, each in zip(texts, form["parameters"], strict=True)]
            except (ValueError, RecursionError):
                continue
    return list(texts)


def _value(text: str, parameter: dict[str, Any]) -> Any:
    """The value of a parameter. Raises ValueError, RecursionError: the text has not its type."""
    kind = parameter["type"]
    if text == "null" and parameter["nullable"]:
        return None
    if kind == "String":
        return text
    if kind == "boolean":
        if text not in ("true", "false"):
            raise ValueError(text)
        return text == "true"
    if kind in ("int", "long"):
        return int(text)
    found = float(text) if kind == "double" else json.loads(text)
    if kind == "Map" and not isinstance(found, dict):
        raise ValueError(text)
    return found


def _unfolded(result: Any) -> Any:
    """A result that is JSON in a text, as in Artemis, as the value of that JSON."""
    if isinstance(result, str) and result[:1] in ("{", "["):
        try:
            return json.loads(result)
        except ValueError:
            return result
    return result
