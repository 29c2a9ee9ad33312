"""CREATESESSION (artemis-core s. 4.1): the session it asks for, and the answer to one that is refused."""

from __future__ import annotations

from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.protocols.services import ProtocolServices
from understudy.security.authentication import Principal
from understudy.session.callback import SessionCallback
from understudy.session.connection_scope import ConnectionScope
from understudy.session.prefixes import AddressPrefixes
from understudy.session.services import SessionOptions
from understudy.session.session import ServerSession
from understudy.wire.core import packets
from understudy.wire.core.codes import code_of

Create = packets.CreateSession | packets.CreateSessionV2


def session_maker(
    request: Create,
    principal: Principal,
    shared: ProtocolServices,
    scope: ConnectionScope,
    prefixes: AddressPrefixes,
) -> Callable[[SessionCallback], ServerSession]:
    """A function that makes the session of a client that has logged in. It raises SessionRejected or LimitExceeded:
    there are too many sessions, or the names are too long.
    """
    options = SessionOptions(
        min_large_message_size=request.min_large_message_size,
        auto_commit_sends=request.auto_commit_sends,
        auto_commit_acks=request.auto_commit_acks,
        pre_acknowledge=request.pre_acknowledge,
        xa=request.xa,
        default_address=request.default_address,
        prefixes=prefixes,
        validated_user=shared.access.validated_user(principal),
        of_cluster=principal.of_cluster,
    )
    security = shared.access.permissions(principal)

    def make(callback: SessionCallback) -> ServerSession:
        return ServerSession(
            request.name, shared.sessions, callback=callback, connection=scope, security=security, options=options
        )

    return make


def refusal(error: BrokerError, shared: ProtocolServices) -> packets.ExceptionResponse:
    """The answer to a request that failed because of ``error``."""
    return packets.ExceptionResponse(code_of(error), shared.error_texts.remote(error), None)
