"""Visibility: which names a client may learn of, and which temporary queues it may use.

Asking is no permission of its own, so a client that has none at all on an address learns nothing of it,
not even whether it exists: the refusal is the same for what exists and what does not. A temporary
queue is its maker's: another user needs ``manage`` to consume from it or to delete it, whatever the
roles allow on names of that form (docs/operate/security.md, class 9c).

Not here: permissions to do something (``session``).
"""

from __future__ import annotations

from contextlib import suppress

from understudy.errors import NotAuthorized, QueueNotFound
from understudy.routing.configuration import split_fqqn
from understudy.routing.directory import Directory
from understudy.routing.queues.queue import Queue
from understudy.session.callback import SessionSecurity
from understudy.session.connection_scope import ConnectionScope
from understudy.terms import Permission


def check_visible(
    security: SessionSecurity,
    asked: str,
    address: str,
    queue: str | None = None,
    *,
    purpose: Permission = Permission.CONSUME,
) -> None:
    """Nothing if the client has any permission there.

    Args:
        asked: The name as the client gave it, the only one that the refusal names.
        address: That it stands for.
        queue: Likewise.
        purpose: The most common purpose of such a request, which a refusal names as the violation.

    Raises:
        NotAuthorized: it has none.
    """
    if _is_visible(security, address, queue):
        return
    with suppress(NotAuthorized):
        security.check(purpose, address, queue)
    raise NotAuthorized(f"user {security.user!r} has no permission on {asked!r}")


def _is_visible(security: SessionSecurity, address: str, queue: str | None) -> bool:
    return any(security.allows(permission, address, queue) for permission in Permission)


def queue_names(directory: Directory, security: SessionSecurity, address: str) -> tuple[str, ...]:
    """Names of the queues of an address; of a wildcard address those of every address that it covers, as far as
    the client may know of them.
    """
    known = directory.find_address(address)
    names = known.queue_names() if known is not None else []
    for covered in directory.covered_by(address):
        names += [name for name in covered.queue_names() if _is_visible(security, covered.name, name)]
    return tuple(names)


def find_visible(directory: Directory, security: SessionSecurity, name: str) -> Queue | None:
    """The queue of a name, plain or ``address::queue``; None if there is none.

    Raises:
        NotAuthorized: the client has no permission on it, or on the name if it is not there.
    """
    queue = directory.find_queue(name)
    if queue is not None:
        check_visible(security, name, queue.address.name, queue.name)
    else:
        fqqn = split_fqqn(name)
        check_visible(security, name, *(fqqn if fqqn is not None else (name, name)))
    return queue


def visible_queue(directory: Directory, security: SessionSecurity, name: str) -> Queue:
    """The queue of a name, plain or ``address::queue``. Raises QueueNotFound, NotAuthorized."""
    queue = find_visible(directory, security, name)
    if queue is None:
        raise QueueNotFound(f"no queue {name!r}")
    return queue


def check_own(queue: Queue, connection: ConnectionScope, security: SessionSecurity) -> None:
    """Nothing if the queue is not temporary, or made on this connection or by this user.

    Raises:
        NotAuthorized: it belongs to another connection.
    """
    if not queue.temporary or connection.temporary_queues.get(queue.name) is queue:
        return
    if queue.configuration.user != security.user:
        security.check(Permission.MANAGE, queue.address.name, queue.name)
