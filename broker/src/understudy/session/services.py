"""Objects that all sessions of a node share, and the options with which a client creates a session."""

from __future__ import annotations

from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.ports import Clock
from understudy.routing.post_office import PostOffice
from understudy.session.broker_properties import ValidatedUsers
from understudy.session.callback import Management
from understudy.session.prefixes import NO_PREFIXES, AddressPrefixes
from understudy.session.registry import SessionRegistry
from understudy.session.resource_manager import ResourceManager

NO_VALIDATED_USERS: Final = ValidatedUsers()
#: Body size from which Artemis clients send and receive a message in pieces (artemis-core s. 6.2).
MIN_LARGE_MESSAGE_BYTES: Final = 100 * 1024


@dataclass(slots=True)
class SessionServices:
    """Services that every session of an active node uses, whatever its protocol."""

    post_office: PostOffice
    registry: SessionRegistry[Any]
    resources: ResourceManager
    clock: Clock
    validated_users: ValidatedUsers = NO_VALIDATED_USERS
    """How the validated user is added to messages."""
    management: Management | None = None
    """Handles requests to the management address; None if there is no such address."""


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Properties of a session that are fixed when it is created."""

    min_large_message_size: int = MIN_LARGE_MESSAGE_BYTES
    """Size of the pieces in which large messages are delivered. Bytes."""
    auto_commit_sends: bool = True
    auto_commit_acks: bool = True
    pre_acknowledge: bool = False
    """Whether messages are acknowledged when they are delivered."""
    xa: bool = False
    default_address: str | None = None
    """Address of messages that name none."""
    prefixes: AddressPrefixes = NO_PREFIXES
    """Prefixes that the acceptor allows before names."""
    validated_user: str | None = None
    """User name of the login; None if passwords are not checked."""
    of_cluster: bool = False
    """The client is another node that has proved the cluster password: properties that only a broker writes are kept in
    its messages.
    """


DEFAULT_OPTIONS: Final = SessionOptions()
