"""Operations of ``broker`` on connection factories, which give clients their URL (ADR 0178)."""

from __future__ import annotations

from typing import Final

from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.config.profiles.reader import places_of
from understudy.errors import ManagementError
from understudy.management.operations.invocation import Control
from understudy.management.operations.table import Operation, operation, text


def _names(control: Control) -> list[str]:
    return [each.name for each in control.node.configuration.connection_factories]


def _factory(control: Control, name: str) -> ConnectionFactoryConfiguration:
    """A connection factory. Raises ManagementError: there is none of the name."""
    found = {each.name: each for each in control.node.configuration.connection_factories}
    if name not in found:
        raise ManagementError(f"there is no connection factory {name!r}", hint=", ".join(found) or None)
    return found[name]


def client_url(control: Control, name: str) -> str:
    """The client URL of a connection factory. Raises ManagementError: there is none of the name."""
    return _factory(control, name).url(places_of(control.node.configuration))


def jndi_properties(control: Control, name: str) -> str:
    """A file ``jndi.properties`` with a connection factory. Raises ManagementError: there is none of the name."""
    return _factory(control, name).jndi_properties(places_of(control.node.configuration))


FACTORY_OPERATIONS: Final[tuple[Operation, ...]] = (
    operation("getConnectionFactoryNames", _names, "Names of the connection factories.", returns=list[str]),
    operation("getClientUrl", client_url, "The client URL of a connection factory.", text("name"), returns=str),
    operation("getJndiProperties", jndi_properties, "A file jndi.properties with a connection factory.", text("name"),
              returns=str),
)  # fmt: skip
