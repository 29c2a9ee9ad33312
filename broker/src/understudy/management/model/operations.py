"""Declared operations of managed resources."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from understudy.management.model.figure import Item, figure


class Parameter(Item, frozen=True, kw_only=True):
    """A parameter of an operation."""

    name: Annotated[str, figure("Name of the parameter.")]
    type: Annotated[Literal["String", "int", "long", "boolean", "double", "Map"], figure("Type, by its name in Java.")]
    nullable: Annotated[bool, figure("Whether the value may be null.")]


class Operation(Item, frozen=True, kw_only=True):
    """An operation, or an attribute, of one kind of resource."""

    id: Annotated[str, figure("Kind of the resource and form of the operation, unique.")]
    resource: Annotated[str, figure("Kind of the resource: broker, queue, address …")]
    name: Annotated[str, figure("Name of the operation.")]
    attribute: Annotated[str | None, figure("Name of the attribute that the operation reads; null: it is none.")]
    parameters: Annotated[list[Parameter], figure("Parameters in their order.")]
    result: Annotated[str, figure("Type of the result in words.")]
    schema: Annotated[dict[str, Any] | None, figure("JSON schema of the result; null: it has none.")]
    permission: Annotated[Literal["view", "edit"], figure("Permission that management-message-rbac requires.")]
    effect: Annotated[
        Literal["none", "live", "restart"],
        figure("none: it changes nothing; live: at once; restart: the node gives up its active role."),
    ]
    doc: Annotated[str, figure("A sentence.")]
