"""A connection factory: its values, the client URL and the JNDI properties that they make.

Not here: reading the element (``reader``), serving the URL (``management``), and the settings of clients themselves
(``client.core.url``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from understudy.dataclass import dataclass
from understudy.errors import ManagementError

#: Prefix of names that only applications inside an application server look up.
_EXPORTED: Final = "java:jboss/exported/"
_INITIAL_CONTEXT: Final = "org.apache.activemq.artemis.jndi.ActiveMQInitialContextFactory"


@dataclass(frozen=True, slots=True)
class ConnectionFactoryConfiguration:
    """Named settings of clients."""

    name: str
    connectors: tuple[str, ...]
    """Names of the connectors."""
    entries: tuple[str, ...]
    """Names in JNDI."""
    parameters: tuple[tuple[str, str], ...]
    """Parameters of the client URL that are given, with their values."""

    def url(self, places: Mapping[str, str]) -> str:
        """The client URL.

        Args:
            places: Connectors of the server as parts of a client URL, by their names.

        Raises:
            ManagementError: the factory has no connector.
        """
        if not self.connectors:
            raise ManagementError(
                f"connection-factory {self.name!r} has no connector", hint="add the name of one to its connectors"
            )
        listed = ",".join(places[each] for each in self.connectors)
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in self.parameters)
        return f"({listed})" + (f"?{query}" if query else "")

    def jndi_properties(self, places: Mapping[str, str]) -> str:
        """The text of a file ``jndi.properties`` for clients of JMS, which look the factory up by its entries.

        Arguments and errors as of ``url``.
        """
        url = self.url(places)
        names = dict.fromkeys(each.removeprefix(_EXPORTED) for each in self.entries or (self.name,))
        lines = [f"java.naming.factory.initial={_INITIAL_CONTEXT}"]
        lines += [f"connectionFactory.{_escaped(each)}={url}" for each in names]
        return "\n".join(lines) + "\n"


def _escaped(name: str) -> str:
    """A key of a file of properties."""
    return re.sub(r"([\\:=#! ])", r"\\\1", name)
