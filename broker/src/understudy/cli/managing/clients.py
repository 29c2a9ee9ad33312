"""``understudy connection``, ``session``, ``channel``, ``consumer``, ``transaction``: look at clients, close them."""

from __future__ import annotations

from typing import Final

import click

from understudy.cli.managing.confirming import confirm, yes_option
from understudy.cli.managing.places import active_node_options, invoke, items
from understudy.cli.node.status import Place
from understudy.cli.tables import Table, View, figure_column, view_options, with_others
from understudy.cli.terminal import Commands, echo
from understudy.errors import ManagementError
from understudy.management.model.clients import Connection, Consumer, Session, Transaction
from understudy.management.model.exchanges import Channel

CONNECTIONS: Final = Table(
    "connections",
    with_others(
        Connection,
        figure_column(Connection, "id"),
        figure_column(Connection, "remote_address", "from"),
        figure_column(Connection, "users"),
        figure_column(Connection, "protocol", optional=True),
        figure_column(Connection, "client_id", optional=True),
        figure_column(Connection, "session_count", "sessions"),
    ),
)
SESSIONS: Final = Table(
    "sessions",
    with_others(
        Session,
        figure_column(Session, "id"),
        figure_column(Session, "connection"),
        figure_column(Session, "user"),
        figure_column(Session, "consumer_count", "consumers"),
        figure_column(Session, "producer_count", "producers"),
    ),
)
CONSUMERS: Final = Table(
    "consumers",
    with_others(
        Consumer,
        figure_column(Consumer, "session"),
        figure_column(Consumer, "id"),
        figure_column(Consumer, "queue"),
        figure_column(Consumer, "filter", optional=True),
        figure_column(Consumer, "user", optional=True),
        figure_column(Consumer, "remote_address", "from"),
        figure_column(Consumer, "delivering_count", "delivering"),
        figure_column(Consumer, "messages_acknowledged", "acknowledged", optional=True),
    ),
)
CHANNELS: Final = Table(
    "channels",
    with_others(
        Channel,
        figure_column(Channel, "connection"),
        figure_column(Channel, "number", "channel"),
        figure_column(Channel, "user", optional=True),
        figure_column(Channel, "virtual_host", "host", optional=True),
        figure_column(Channel, "remote_address", "from"),
        figure_column(Channel, "consumer_count", "consumers"),
        figure_column(Channel, "unacknowledged_count", "unacknowledged"),
        figure_column(Channel, "unconfirmed_count", "unconfirmed"),
        figure_column(Channel, "prefetch_count", "prefetch", optional=True),
    ),
)
TRANSACTIONS: Final = Table(
    "transactions",
    with_others(
        Transaction,
        figure_column(Transaction, "id"),
        figure_column(Transaction, "kind"),
        figure_column(Transaction, "state"),
        figure_column(Transaction, "session", optional=True),
        figure_column(Transaction, "xid", optional=True),
    ),
)


@click.group(cls=Commands)
def connection() -> None:
    """Look at connections of clients, and close them."""


@connection.command("list")
@active_node_options
@view_options(CONNECTIONS, watch=True)
def list_connections(place: Place, view: View) -> None:
    """Show the connections of clients.

    \b
    Example: understudy connection list --filter users=alice
    """
    view.repeat(lambda: view.rows(CONNECTIONS, items(place, "connections")))


@connection.command("close")
@active_node_options
@click.argument("connection_id", metavar="ID", required=False)
@click.option("--user", help="All connections of this user instead.")
@click.option("--from", "host", help="All connections whose address begins with this text instead.")
@yes_option
def close_connection(place: Place, connection_id: str | None, user: str | None, host: str | None, yes: bool) -> None:
    """Close the connection ID, or those of a user or a host. Clients with failover connect again.

    \b
    Example: understudy connection close --user batch --yes

    Exit codes: 0 closed; 1 none was found, or not confirmed; 2 usage; 3 not active or not reachable.
    """
    given = [each for each in (connection_id, user, host) if each is not None]
    if len(given) != 1:
        raise click.UsageError("give one of ID, --user and --from")
    if connection_id is not None:
        done = invoke(place, "broker", "closeConnectionWithID", connection_id)
    else:
        confirm(f"Close all connections {f'of user {user}' if user else f'from {host}'}?", yes=yes)
        operation = "closeConnectionsForUser" if user is not None else "closeConnectionsForAddress"
        done = invoke(place, "broker", operation, given[0])
    _done(done, "closed", "no such connection")


@click.group(cls=Commands)
def session() -> None:
    """Look at sessions of clients, and close them."""


@session.command("list")
@active_node_options
@view_options(SESSIONS, watch=True)
def list_sessions(place: Place, view: View) -> None:
    """Show the sessions of clients.

    \b
    Example: understudy session list --sort -consumer_count
    """
    view.repeat(lambda: view.rows(SESSIONS, items(place, "sessions")))


@session.command("close")
@active_node_options
@click.argument("session_id", metavar="ID")
def close_session(place: Place, session_id: str) -> None:
    """Close the session ID: its consumers are notified, and an open transaction is rolled back.

    \b
    Example: understudy session close 2f1c
    """
    found = items(place, "sessions", f"id={session_id}")
    if not found:
        raise ManagementError(f"there is no session {session_id}")
    done = invoke(place, "broker", "closeSessionWithID", found[0]["connection"], session_id)
    _done(done, "closed", "no such session")


@click.group(cls=Commands)
def channel() -> None:
    """Look at channels of clients of AMQP 0-9-1. `session close` closes one."""


@channel.command("list")
@active_node_options
@view_options(CHANNELS, watch=True)
def list_channels(place: Place, view: View) -> None:
    """Show the open channels of clients of AMQP 0-9-1.

    \b
    Example: understudy channel list --filter "unacknowledged_count>1000"
    """
    view.repeat(lambda: view.rows(CHANNELS, items(place, "channels")))


@click.group(cls=Commands)
def consumer() -> None:
    """Look at consumers, and close them."""


@consumer.command("list")
@active_node_options
@click.option("--queue", help="Only those of this queue.")
@view_options(CONSUMERS, watch=True)
def list_consumers(place: Place, queue: str | None, view: View) -> None:
    """Show consumers and browsers.

    \b
    Example: understudy consumer list --queue orders
    """
    conditions = () if queue is None else (f"queue={queue}",)
    view.repeat(lambda: view.rows(CONSUMERS, items(place, "consumers", *conditions)))


@consumer.command("close")
@active_node_options
@click.argument("session_id", metavar="SESSION")
@click.argument("consumer_id", metavar="ID")
def close_consumer(place: Place, session_id: str, consumer_id: str) -> None:
    """Close the consumer ID of SESSION; messages in delivery go back to the queue.

    \b
    Example: understudy consumer close 2f1c 0
    """
    _done(invoke(place, "broker", "closeConsumerWithID", session_id, consumer_id), "closed", "no such consumer")


@click.group(cls=Commands)
def transaction() -> None:
    """Look at transactions, and decide those that their manager does not end."""


@transaction.command("list")
@active_node_options
@view_options(TRANSACTIONS, watch=True)
def list_transactions(place: Place, view: View) -> None:
    """Show XA branches, and open transactions of sessions.

    \b
    Example: understudy transaction list --filter state=PREPARED
    """
    view.repeat(lambda: view.rows(TRANSACTIONS, items(place, "transactions")))


@transaction.command()
@active_node_options
@click.argument("transaction_id", metavar="ID")
@yes_option
def commit(place: Place, transaction_id: str, yes: bool) -> None:
    """Commit the prepared XA branch ID without its transaction manager, which learns of it later.

    Other resources of the same transaction may have rolled back: ask its manager first.

    \b
    Example: understudy transaction commit AAAAAQ==
    """
    confirm(f"Commit branch {transaction_id} without its transaction manager?", yes=yes)
    done = invoke(place, "broker", "commitPreparedTransaction", transaction_id)
    _done(done, "committed", "no such prepared branch")


@transaction.command()
@active_node_options
@click.argument("transaction_id", metavar="ID")
@yes_option
def rollback(place: Place, transaction_id: str, yes: bool) -> None:
    """Roll the prepared XA branch ID back without its transaction manager, which learns of it later.

    \b
    Example: understudy transaction rollback AAAAAQ==
    """
    confirm(f"Roll branch {transaction_id} back without its transaction manager?", yes=yes)
    done = invoke(place, "broker", "rollbackPreparedTransaction", transaction_id)
    _done(done, "rolled back", "no such prepared branch")


def _done(done: bool, what: str, missing: str) -> None:
    """Say the end of a request. Raises ManagementError: nothing was found."""
    if not done:
        raise ManagementError(missing)
    echo(what)
