"""Reads the acceptors and connectors of a server.

Not here: the URL and parameters of one of them (``config.reading.transport``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from understudy.config.model import AcceptorConfiguration, ConnectorConfiguration
from understudy.config.reading.document import Document, Node
from understudy.config.reading.tls import TlsReader
from understudy.config.reading.transport import in_vm_number, read_acceptor, read_connector
from understudy.config.sockets.bindings import SocketBindings


class TransportReader:
    """Reader of the acceptors and connectors of one server."""

    def __init__(self, document: Document, tls: TlsReader, sockets: SocketBindings) -> None:
        """Args:
        document: Makes errors and takes warnings.
        tls: Reads parameters of TLS.
        sockets: Addresses by the names of socket bindings.
        """
        self._document = document
        self._tls = tls
        self._sockets = sockets
        self.in_vm: set[str] = set()
        """Names of connectors that were left aside, because they lead into a virtual machine of Java."""

    def read(self, core: Node) -> tuple[tuple[AcceptorConfiguration, ...], tuple[ConnectorConfiguration, ...]]:
        """The acceptors and connectors of a server, without those that are left aside with a warning."""
        document = self._document
        opened = document.each(document.list(core, "acceptors", "acceptor", counts="last"), self._acceptor_reader())
        acceptors = tuple(acceptor for acceptor in opened if acceptor is not None)
        listed = document.list(core, "connectors", "connector", counts="last")
        found = document.each(listed, partial(self._connector, core, acceptors))
        return acceptors, tuple(connector for connector in found if connector is not None)

    def _connector(
        self, core: Node, acceptors: Sequence[AcceptorConfiguration], node: Node, name: str
    ) -> ConnectorConfiguration | None:
        """A connector; None: one inside the virtual machine of Java that leads to no acceptor of this server."""
        number = in_vm_number(node)
        if number is None:
            return read_connector(node, self._document, self._tls, self._sockets)
        holder = core.child("acceptors")
        own = any(in_vm_number(each) == number for each in holder.all("acceptor")) if holder is not None else False
        target = next((each for each in acceptors if each.tls is None), None)
        if not own or target is None:
            message = f"connector {name!r} is left aside: there are no transports inside a virtual machine here"
            self._document.warn(f"connector {name}", message, node)
            self.in_vm.add(name)
            return None
        host = "127.0.0.1" if target.host in ("0.0.0.0", "::") else target.host
        message = f"connector {name!r} leads to acceptor {target.name!r} of this server, tcp://{host}:{target.port}"
        self._document.warn(f"connector {name}", message, node)
        return ConnectorConfiguration(name, host, target.port, None, {})

    def _acceptor_reader(self) -> Callable[[Node, str], AcceptorConfiguration | None]:
        taken: dict[tuple[str, int], str] = {}

        def read(node: Node, name: str) -> AcceptorConfiguration | None:
            acceptor = read_acceptor(node, self._document, self._tls, self._sockets)
            if acceptor is None:
                return None
            place = (acceptor.host, acceptor.port)
            if acceptor.port and place in taken:
                raise self._document.error_at(node, f"acceptor {taken[place]!r} listens on {acceptor.url} already")
            taken[place] = name
            return acceptor

        return read
