"""Generator of docs/use/management-over-messages.md from the tables of operations:
``python -m understudy.management.reference``.

Not here: operations, parameters and descriptions, which are in the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from textwrap import fill

from understudy.management.differences import DIFFERENCES
from understudy.management.events.notifications import Kind
from understudy.management.operations.resources import CONTROLS
from understudy.management.operations.table import Effect, Operation, Operations, type_text
from understudy.terms import Permission

_HEAD = """\
# Management over messages

Generated from the tables by `python -m understudy.management.reference`; do not edit.

A client manages the broker by sending messages to the address `activemq.management` (element `management-address`).
Standard tools do so: the `artemis` command line, `ManagementHelper` of the Java client, `JMSManagementHelper`.
The same operations are available over HTTP: [management-api.md](../operate/management-api.md#post-apiv1invoke).


## Requests and replies

| property of the request | |
|---|---|
| `_AMQ_ResourceName` | `broker`, or `address.`, `queue.`, `divert.`, `acceptor.`, `bridge.`, \
`clusterconnection.` and a name |
| `_AMQ_OperationName` | an operation below; its parameters are a JSON array in the body |
| `_AMQ_Attribute` | instead of an operation: an attribute below |
| `JMSReplyTo` | address of the reply; without one no reply is sent |
| `JMSCorrelationID` | copied to the reply; if absent, the message id |

The body is a nullable SimpleString, as in a JMS text message. The property `_AMQ_OperationSucceeded` of the reply says
whether the operation succeeded; the body is a JSON array of one element, the result or the error. Operations without a
result have no body. A request is never queued, is at most 1 MiB and no large message (`minLargeMessageSize` of its
client, 100 KiB), and takes no part in a transaction: its effects cannot be rolled back, so the reply is sent at once,
after everything that the operation wrote is durable.

An unknown name is answered with the names that are like it, and parameters of a wrong number or type with the forms of
the operation. Operations that read many messages do so in slices between other work, while the queue continues to work;
messages that are sent after the request are left alone.

## Permissions

A request requires the permission `manage` on the management address and `send` on the reply address. With
`management-message-rbac` also `view` (operations whose name begins with get, is, list, count, browse or query, unless
the element `view-permission-method-match-pattern` says otherwise) or `edit` (all others) on `mops.RESOURCE.OPERATION`,
for instance `mops.queue.orders.removeMessages`; the prefix is `management-rbac-prefix`. An attribute has the
permission of its getter. Every operation that requires `edit` is logged with its user.

Sessions are identified by an alias: a client that knows the name could reattach to the session (ADR 0009).

## Options of lists

`listQueues` and the other pages take `{"field", "operation", "value", "sortField", "sortOrder"}` as JSON text, or null.
Operations: CONTAINS, NOT_CONTAINS, EQUALS, NOT_EQUALS, GREATER_THAN, LESS_THAN; order `asc` or `desc`. Fields are the
names in the reply, also in upper case with underscores (`MESSAGE_COUNT`). Pages count from 1; -1 for page or size is
everything. The reply is `{"data": [...], "count": n}`, where n is the number of rows that pass the filter.
"""

_DIFFERENT = """
## Differences from Artemis

A test sends the same requests to both in the same state (`broker/tests/interop/test_management_side_by_side.py`). Ids,
times and names of sessions always differ. Deliberate differences:

"""

_NOTIFICATIONS = """
## Notifications

Events on the node are published as messages to the address `activemq.notifications` (element
`management-notification-address`): durable messages of type 0 without a body, whose properties can be selected with
selectors. No messages are created while no queue is bound to the address. `suppress-session-notifications` omits those
about sessions. A notification that cannot be sent (the disk or the address is full) is logged and dropped.

Every notification has `_AMQ_NotifType` and `_AMQ_NotifTimestamp` (milliseconds since 1970).

| `_AMQ_NotifType` | when | further properties |
|---|---|---|
"""


def render() -> str:
    """The page in Markdown."""
    parts = [_HEAD, _DIFFERENT, *map(_item, DIFFERENCES.values())]
    for kind in CONTROLS:
        parts.extend(_resource(kind.operations))
    parts.append(_NOTIFICATIONS)
    parts.extend(f"| `{kind.name}` | {kind.doc} | {_list(kind.properties)} |\n" for kind in Kind)
    return "".join(parts)


def _item(text: str) -> str:
    return fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False) + "\n"


def _resource(operations: Operations) -> Iterator[str]:
    name = operations.kind if operations.kind == "broker" else f"{operations.kind}.NAME"
    yield f"\n## {name}\n\n{operations.doc}\n"
    attributes = [row for row in operations.rows if row.attribute is not None]
    yield "\n| attribute | as an operation | value | |\n|---|---|---|---|\n"
    yield from (f"| `{row.attribute}` | `{row.name}()` | {type_text(row.result)} | {row.doc} |\n" for row in attributes)
    proper = [row for row in operations.rows if row.attribute is None]
    if proper:
        yield "\n| operation | result | permission | |\n|---|---|---|---|\n"
        for row in proper:
            permission = "view" if row.permission() is Permission.VIEW else "edit"
            yield f"| `{row.signature}` | {type_text(row.result)} | {permission}{_effect(row)} | {row.doc} |\n"


def _effect(row: Operation) -> str:
    return ", ends the active role" if row.effect is Effect.RESTART else ""


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(render())
