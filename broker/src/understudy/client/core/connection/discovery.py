"""Brokers found by listening: their broadcasts, and the rules for trusting them.

Format and rules: artemis-ha s. 7.1; the entries are those of ``cluster.discovery.entries``.

Any host on the network can send a broadcast. So the result is only an address to connect to: ``may_be_told`` says
whether a password may go there. Not here: sockets, files and waiting (the shells).
"""

from __future__ import annotations

from collections.abc import Callable

from understudy.client.core.url.options import ClientOptions, Connector, DiscoveryGroup
from understudy.client.core.url.parsing import connector_of
from understudy.cluster.discovery.entries import Entries, Outcome
from understudy.errors import ConfigError
from understudy.wire.core.broadcast import from_channel
from understudy.wire.core.transport import TransportConfiguration

_HEARD = frozenset({Outcome.ADDED, Outcome.CHANGED, Outcome.REFRESHED})


class Discovery:
    """The nodes heard of lately."""

    def __init__(
        self, group: DiscoveryGroup, template: Connector, log: Callable[[str], None], channel: str | None = None
    ) -> None:
        """Args:
        template: What the URL says for every connector. If it wants TLS, everything found is dialled
            with TLS, whatever the datagram says.
        log: Called with lines for the operator.
        channel: JGroups channel of the datagrams; None: plain ones.
        """
        self._group = group
        self._template = template
        self._channel = channel
        self._entries = Entries(
            str(group),
            group.refresh_timeout_ms,
            warn=lambda text, values: log(f"{group}: {text} ({', '.join(map(str, values.values()))})"),
        )

    @property
    def refused(self) -> int:
        """Datagrams that were no broadcasts of connectors."""
        return self._entries.outcomes[Outcome.DAMAGED]

    def receive(self, data: bytes, now_ms: int, source: str = "") -> bool:
        """Take a datagram. Returns whether it named a place to dial."""
        self._entries.expire(now_ms)
        datagram = data if self._channel is None else from_channel(self._channel, data)
        return datagram is not None and self._entries.receive(datagram, source, now_ms) in _HEARD

    def connectors(self, now_ms: int) -> tuple[Connector, ...]:
        """Connectors of the nodes heard within the refresh timeout, one for each node."""
        self._entries.expire(now_ms)
        found = (self._connector(each.connector) for each in self._entries.all())
        return tuple({each.place: each for each in found if each is not None}.values())

    def nothing_heard(self) -> str:
        """The text of the error when the wait for the first broadcast has ended."""
        refused = f"; {self.refused} datagram(s) were something else" if self.refused else ""
        return f"{self._group}: no broker heard for {self._group.initial_wait_timeout_ms} ms{refused}"

    def _connector(self, heard: TransportConfiguration) -> Connector | None:
        own = self._template
        found = connector_of(heard.parameters, own, heard.name)
        if found is None or own.tls is None or found.tls is not None:
            return found
        return connector_of({"host": found.host, "port": found.port, "sslEnabled": "true"}, own)


def may_be_told(connector: Connector, options: ClientOptions, password: str | None) -> bool:
    """Whether logging in at a discovered place gives no password away: there is none, the server
    proves itself by a certificate, or the URL says that broadcasts are to be trusted.
    """
    return not password or options.trust_discovery or (connector.tls is not None and connector.tls.proves_the_server)


def check_trust(connectors: tuple[Connector, ...], options: ClientOptions, password: str | None) -> None:
    """Raises:
    ConfigError: at one of the places our password would go to any sender of a datagram.
    """
    for connector in connectors:
        if not may_be_told(connector, options, password):
            raise ConfigError(
                f"{connector} is known from a datagram only and does not prove itself: no password goes there",
                hint="use sslEnabled=true with trustStorePath, or trustDiscovery=true on a network of your own",
            )
