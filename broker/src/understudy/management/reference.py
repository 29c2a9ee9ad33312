"""docs/management-over-messages.md, written from the tables of operations:
``python -m understudy.management.reference``.

Not here: any operation, parameter or meaning; they are in the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from understudy.config.model import Permission
from understudy.management.controls_by_name import CONTROLS
from understudy.management.differences import DIFFERENCES
from understudy.management.notifications import Kind
from understudy.management.operations import Operations

_HEAD = """\
# Management over messages

Generated from the tables by `python -m understudy.management.reference`; do not edit.

A client manages the broker by sending messages to the address `activemq.management` (element `management-address`).
Stock tools do it that way: the `artemis` command line, `ManagementHelper` of the Java client, `JMSManagementHelper`.
The same operations are there over HTTP: [management-api.md](management-api.md#post-apiv1invoke).


## Requests and replies

| property of the request | |
|---|---|
| `_AMQ_ResourceName` | `broker`, or `address.`, `queue.`, `divert.`, `acceptor.`, `clusterconnection.` and a name |
| `_AMQ_OperationName` | an operation below; its parameters are a JSON array in the body |
| `_AMQ_Attribute` | instead of an operation: an attribute below |
| `JMSReplyTo` | address of the reply; without one nothing is answered |
| `JMSCorrelationID` | comes back in the reply; else the message id does |

Bodies are a nullable SimpleString, which is what a JMS text message has. The reply says in `_AMQ_OperationSucceeded`
whether it was carried out; its body is a JSON array of one element, the result or why it was not. Operations without a
result have no body. A request is never queued, is at most 1 MiB, and takes no part in a transaction: what it did cannot
be rolled back, so its reply is sent at once, when everything it wrote is durable.

Operations go by the table: an unknown name, or parameters of a wrong number or type, are answered with what there is.
What looks at many messages does so in slices between other work, and the queue goes on meanwhile: messages that are
sent after the request are left alone.

## Permissions

The permission `manage` on the management address, and `send` on the reply address. With `management-message-rbac` also
`view` (operations whose name begins with get, is, list, count, browse or query, unless the element
`view-permission-method-match-pattern` says otherwise) or `edit` (all others) on
`mops.RESOURCE.OPERATION`, for instance `mops.queue.orders.removeMessages`; the prefix is `management-rbac-prefix`.
An attribute counts as its getter. Every operation that needs `edit` is logged with its user.

Sessions are shown by an alias, never by name: a client that knows the name could reattach to the session (ADR 0009).

## Options of lists

`listQueues` and the other pages take `{"field", "operation", "value", "sortField", "sortOrder"}` as JSON text, or null.
Operations: CONTAINS, NOT_CONTAINS, EQUALS, NOT_EQUALS, GREATER_THAN, LESS_THAN; order `asc` or `desc`. Fields are the
names in the answer, also in upper case with underscores (`MESSAGE_COUNT`). Pages count from 1; -1 for page or size is
everything. The answer is `{"data": [...], "count": n}`, where n counts all that pass the filter.
"""

_DIFFERENT = """
## Differences from Artemis

Both were asked the same in the same state (`broker/tests/interop/test_management_side_by_side.py`). Ids, times and
names of sessions differ by nature. On purpose:

"""

_NOTIFICATIONS = """
## Notifications

Events on the node are published as messages of the address `activemq.notifications` (element
`management-notification-address`) to the queues there: durable messages of type 0 without a body, whose
properties a selector can choose by. While there is no queue, none are made. `suppress-session-notifications` leaves
those of sessions out. One that cannot be sent (the disk or the address is full) is logged and dropped.

Every one has `_AMQ_NotifType` and `_AMQ_NotifTimestamp` (milliseconds since 1970).

| `_AMQ_NotifType` | when | further properties |
|---|---|---|
"""


def render() -> str:
    """The whole page as Markdown."""
    parts = [_HEAD, _DIFFERENT, *(f"- {text}\n" for text in DIFFERENCES.values())]
    for kind in CONTROLS:
        parts.extend(_resource(kind.operations))
    parts.append(_NOTIFICATIONS)
    parts.extend(f"| `{kind.name}` | {kind.doc} | {_list(kind.properties)} |\n" for kind in Kind)
    return "".join(parts)


def _resource(operations: Operations) -> Iterator[str]:
    name = operations.kind if operations.kind == "broker" else f"{operations.kind}.NAME"
    yield f"\n## {name}\n\n{operations.doc}\n"
    attributes = [row for row in operations.rows if row.attribute is not None]
    yield "\n| attribute | as an operation | |\n|---|---|---|\n"
    yield from (f"| `{row.attribute}` | `{row.name}()` | {row.doc} |\n" for row in attributes)
    proper = [row for row in operations.rows if row.attribute is None]
    if proper:
        yield "\n| operation | permission | |\n|---|---|---|\n"
        for row in proper:
            permission = "view" if row.permission() is Permission.VIEW else "edit"
            yield f"| `{row.signature}` | {permission} | {row.doc} |\n"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    sys.stdout.write(render())
