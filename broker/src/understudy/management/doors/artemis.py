"""Projections of the model with the names and forms of Artemis' management.

A list of Artemis has the fields of the model that are declared with a name in Artemis, in their order, and columns
that this broker has no value for. Absent texts are empty and absent limits -1 there. Sessions are identified by alias:
their names are secret (ADR 0009).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, get_args

from understudy.dataclass import dataclass
from understudy.management.model import clients, queues
from understudy.management.model.figure import Figure, Item, base_types, figures
from understudy.management.snapshot.rows import Rows

#: Class of every connection in Artemis' management.
IMPLEMENTATION: Final = "RemotingConnectionImpl"
#: Status of every listed consumer, which always has a connection.
STATUS: Final = "OK"

Form = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a list: a field of the model in Artemis' form, or a constant."""

    field: str | None
    """Field of the model; None: the column has no value here."""
    form: Form

    def read(self, rows: Rows[Any], source: Any) -> object:
        """The value of a row."""
        return self.form(None if self.field is None else rows.readers[self.field](source))

    def of(self, item: Item) -> object:
        """The value of an item."""
        return self.form(None if self.field is None else getattr(item, self.field))


def routing_types(names: list[str]) -> str:
    """Routing types as Artemis writes them: ``["ANYCAST"]``, ``["MULTICAST","ANYCAST"]``."""
    return "[" + ",".join(f'"{name}"' for name in names) + "]"


def date_text(wall_ms: int) -> str:
    """A date in the format of Java's Date, in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _as_is(value: object) -> object:
    return value


def _text_or_empty(value: str | None) -> str:
    return value or ""


def _minus_one(value: int | None) -> int:
    return -1 if value is None else value


def _form(figure: Figure) -> Form:
    """The form of a field by its type."""
    types = get_args(figure.type)
    if type(None) not in types:
        return date_text if figure.unit == "ms since 1970" else _as_is
    return _text_or_empty if str in types else _minus_one


def columns(
    kind: type[Item], forms: Mapping[str, Form], after: Mapping[str, Mapping[str, Column]]
) -> dict[str, Column]:
    """The columns of a list, by name.

    Args:
        kind: Kind of the items.
        forms: Forms of fields that are not given by their types.
        after: Further columns by the column that they follow.
    """
    found: dict[str, Column] = {}
    for figure in figures(kind).values():
        if figure.artemis is not None:
            found[figure.artemis] = Column(figure.name, forms.get(figure.name) or _form(figure))
            found |= after.get(figure.artemis, {})
    return found


def _constant(value: object) -> Column:
    return Column(None, lambda nothing: value)


_EMPTY: Final = _constant("")
_VALIDATED: Final = {"validatedUser": Column("user", _as_is)}

QUEUES: Final = columns(queues.Queue, {}, {"messagesKilled": {"directDeliver": _constant(False)}})
ADDRESSES: Final = columns(queues.Address, {"routing_types": routing_types}, {})
CONNECTIONS: Final = columns(
    clients.Connection,
    {"users": ",".join},
    {
        "creationTime": {"implementation": _constant(IMPLEMENTATION)},
        "clientID": dict.fromkeys(("localAddress", "proxyAddress", "proxyProtocolVersion"), _EMPTY),
    },
)
SESSIONS: Final = columns(clients.Session, {}, {"user": _VALIDATED})
CONSUMERS: Final = columns(
    clients.Consumer,
    {"routing_type": str.lower},
    {
        "user": _VALIDATED,
        "address": {"localAddress": _EMPTY},
        "messagesAcknowledged": {"status": _constant(STATUS)},
    },
)
PRODUCERS: Final = columns(
    clients.Producer, {"created_ms": _as_is}, {"user": _VALIDATED, "address": {"localAddress": _EMPTY}}
)


def attribute_type(kind: type[Item], name: str) -> Any:
    """Type of a column as the value of an attribute."""
    figure = next(each for each in figures(kind).values() if each.artemis == name)
    types = base_types(figure.type)
    if str in types:
        return str | None if type(None) in types else str
    return str if list in types else next(each for each in types if each is not type(None))


def attribute(column: Column, readers: Mapping[str, Callable[[Any], object]], source: object) -> object:
    """A column as the value of an attribute: an empty text is null."""
    value = column.form(None if column.field is None else readers[column.field](source))
    return None if value == "" else value


# -- the JSON lists, whose names are older than those of the pages --------------------------------


def connection_json(item: clients.Connection) -> dict[str, object]:
    """An entry of ``listConnectionsAsJSON``."""
    return {
        "connectionID": item.id,
        "clientAddress": item.remote_address,
        "creationTime": item.created_ms,
        "implementation": IMPLEMENTATION,
        "sessionCount": item.session_count,
    }


def session_json(item: clients.Session) -> dict[str, object]:
    """An entry of ``listSessionsAsJSON``."""
    named = {"validatedUser": item.user, "principal": item.user} if item.user else {}
    return {
        "sessionID": item.id,
        "creationTime": item.created_ms,
        "consumerCount": item.consumer_count,
        **named,
        **({"metadata": item.metadata} if item.metadata else {}),
    }


def consumer_json(item: clients.Consumer) -> dict[str, object]:
    """An entry of the queue's ``listConsumersAsJSON``."""
    return {
        "consumerID": item.id,
        "sequentialId": item.id,
        "connectionID": item.connection,
        "sessionID": item.session,
        "browseOnly": item.browses,
        "creationTime": item.created_ms,
        "messagesInTransit": item.delivering_count,
        "messagesInTransitSize": item.delivering_bytes,
        "messagesDelivered": item.messages_delivered,
        "messagesAcknowledged": item.messages_acknowledged,
        "status": STATUS,
    }


def consumer_of_queue_json(item: clients.Consumer) -> dict[str, object]:
    """An entry of the broker's ``listConsumersAsJSON``: with the name of the queue."""
    filtered = {"filter": item.filter} if item.filter is not None else {}
    return consumer_json(item) | {"queueName": item.queue, "deliveringCount": item.delivering_count} | filtered


def producer_json(item: clients.Producer) -> dict[str, object]:
    """An entry of ``listProducersInfoAsJSON``."""
    return {
        "id": str(item.id),
        "name": item.name,
        "connectionID": item.connection,
        "sessionID": item.session,
        "creationTime": str(item.created_ms),
        "destination": item.address or "",
    }
