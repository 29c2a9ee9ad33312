"""The operations of the management CLI that document 001 of the reference shows, as a table of our own.

An entry has the number of the line in the document, the address below the messaging subsystem (or that of a group of
socket bindings), the operation and its parameters; the entries of a list have a plus sign between them. Names in angle
brackets are placeholders of the document.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.values import Value

#: The documents beside a checkout; they are not part of the project.
REFERENCE: Final = Path(__file__).parents[4] / "shared" / "reference"
DOCUMENT: Final = "001*.txt"


class Line(NamedTuple):
    """An operation of the document."""

    number: int
    address: str
    operation: str
    parameters: str = ""

    @property
    def has_placeholder(self) -> bool:
        """Whether a part of the operation is left to the reader of the document."""
        return "<" in self.address + self.parameters

    def parsed(self) -> Operation:
        """The operation."""
        steps = [each.split("=", 1) for each in self.address.split("/")]
        if steps[0][0] == "server":
            steps.insert(0, ["subsystem", "messaging-activemq"])
        given = dict(each.split("=", 1) for each in self.parameters.split(", ") if each)
        arguments: dict[str, Value] = {name: _value(name, text) for name, text in given.items()}
        return Operation(tuple((kind, name) for kind, name in steps), self.operation, arguments)


def _value(name: str, text: str) -> Value:
    return text.split("+") if name == "connectors" else text


def document() -> Path | None:
    """The document; None: it is not beside this checkout."""
    return next(iter(sorted(REFERENCE.glob(DOCUMENT))), None)


LINES: Final = (
    Line(46, "server=<SERVER>/ha-policy=<POLICY>", "add"),
    Line(50, "server=default/ha-policy=replication-master", "add"),
    Line(54, "server=<SERVER>/ha-policy=<POLICY>", "read-resource"),
    Line(58, "server=default/ha-policy=replication-master", "read-resource"),
    Line(
        122,
        "server=default/ha-policy=replication-master",
        "add",
        "check-for-live-server=true, cluster-name=my-cluster, group-name=group1",
    ),
    Line(128, "server=default/ha-policy=replication-slave", "add", "cluster-name=my-cluster, group-name=group1"),
    Line(135, "server=default/cluster-connection=my-cluster", "read-resource"),
    Line(145, "server=default/ha-policy=<POLICY>", "write-attribute", "name=<ATTRIBUTE>, value=<VALUE>"),
    Line(149, "server=default/ha-policy=replication-slave", "write-attribute", "name=restart-backup, value=true"),
    Line(291, "server=default/ha-policy=shared-store-master", "add"),
    Line(294, "server=default/ha-policy=shared-store-slave", "add"),
    Line(299, "server=default/cluster-connection=my-cluster", "read-resource"),
    Line(309, "server=default/ha-policy=<POLICY>", "write-attribute", "name=<ATTRIBUTE>, value=<VALUE>"),
    Line(313, "server=default/ha-policy=shared-store-slave", "write-attribute", "name=restart-backup, value=true"),
    Line(345, "server=default/ha-policy=shared-store-slave", "write-attribute", "name=allow-fail-back, value=true"),
    Line(
        349, "server=default/ha-policy=replication-master", "write-attribute", "name=check-for-live-server, value=true"
    ),
    Line(
        359,
        "server=default/ha-policy=shared-store-slave",
        "write-attribute",
        "name=failover-on-server-shutdown, value=true",
    ),
    Line(363, "server=default/ha-policy=shared-store-slave", "write-attribute", "name=allow-failback, value=true"),
    Line(391, "socket-binding-group=standard-sockets/socket-binding=messaging", "add", "port=5445"),
    Line(393, "socket-binding-group=standard-sockets/socket-binding=messaging-backup", "add", "port=5446"),
    Line(400, "server=default/ha-policy=shared-store-master", "add"),
    Line(
        404,
        "server=default/ha-policy=replication-master",
        "add",
        "cluster-name=my-cluster, group-name=group1, check-for-live-server=true",
    ),
    Line(
        406,
        "server=default/ha-policy=replication-master",
        "add",
        "cluster-name=my-cluster, group-name=group2, check-for-live-server=true",
    ),
    Line(411, "server=backup", "add"),
    Line(417, "server=backup/ha-policy=shared-store-slave", "add"),
    Line(421, "server=backup/ha-policy=replication-slave", "add", "cluster-name=my-cluster, group-name=group2"),
    Line(423, "server=backup/ha-policy=replication-slave", "add", "cluster-name=my-cluster, group-name=group1"),
    Line(
        434, "server=default/path=bindings-directory", "write-attribute", "name=path, value=/path/to/shared/bindings-A"
    ),
    Line(436, "server=default/path=journal-directory", "write-attribute", "name=path, value=/path/to/shared/journal-A"),
    Line(
        438,
        "server=default/path=large-messages-directory",
        "write-attribute",
        "name=path, value=/path/to/shared/largemessages-A",
    ),
    Line(440, "server=default/path=paging-directory", "write-attribute", "name=path, value=/path/to/shared/paging-A"),
    Line(
        442, "server=backup/path=bindings-directory", "write-attribute", "name=path, value=/path/to/shared/bindings-B"
    ),
    Line(444, "server=backup/path=journal-directory", "write-attribute", "name=path, value=/path/to/shared/journal-B"),
    Line(
        446,
        "server=backup/path=large-messages-directory",
        "write-attribute",
        "name=path, value=/path/to/shared/largemessages-B",
    ),
    Line(448, "server=backup/path=paging-directory", "write-attribute", "name=path, value=/path/to/shared/paging-B"),
    Line(
        452, "server=default/path=bindings-directory", "write-attribute", "name=path, value=/path/to/shared/bindings-B"
    ),
    Line(454, "server=default/path=journal-directory", "write-attribute", "name=path, value=/path/to/shared/journal-B"),
    Line(
        456,
        "server=default/path=large-messages-directory",
        "write-attribute",
        "name=path, value=/path/to/shared/largemessages-B",
    ),
    Line(458, "server=default/path=paging-directory", "write-attribute", "name=path, value=/path/to/shared/paging-B"),
    Line(
        460, "server=backup/path=bindings-directory", "write-attribute", "name=path, value=/path/to/shared/bindings-A"
    ),
    Line(462, "server=backup/path=journal-directory", "write-attribute", "name=path, value=/path/to/shared/journal-A"),
    Line(
        464,
        "server=backup/path=large-messages-directory",
        "write-attribute",
        "name=path, value=/path/to/shared/largemessages-A",
    ),
    Line(466, "server=backup/path=paging-directory", "write-attribute", "name=path, value=/path/to/shared/paging-A"),
    Line(472, "server=backup/path=bindings-directory", "write-attribute", "name=path, value=activemq/bindings-B"),
    Line(474, "server=backup/path=journal-directory", "write-attribute", "name=path, value=activemq/journal-B"),
    Line(
        476,
        "server=backup/path=large-messages-directory",
        "write-attribute",
        "name=path, value=activemq/largemessages-B",
    ),
    Line(478, "server=backup/path=paging-directory", "write-attribute", "name=path, value=activemq/paging-B"),
    Line(482, "server=backup/path=bindings-directory", "write-attribute", "name=path, value=activemq/bindings-B"),
    Line(484, "server=backup/path=journal-directory", "write-attribute", "name=path, value=activemq/journal-B"),
    Line(
        486,
        "server=backup/path=large-messages-directory",
        "write-attribute",
        "name=path, value=activemq/largemessages-B",
    ),
    Line(488, "server=backup/path=paging-directory", "write-attribute", "name=path, value=activemq/paging-B"),
    Line(495, "server=default/remote-acceptor=netty", "add", "socket-binding=messaging"),
    Line(497, "server=backup/remote-acceptor=netty", "add", "socket-binding=messaging-backup"),
    Line(501, "server=default/remote-connector=netty", "add", "socket-binding=messaging"),
    Line(503, "server=backup/remote-connector=netty", "add", "socket-binding=messaging-backup"),
    Line(508, "server=default/cluster-connection=my-cluster", "write-attribute", "name=connector-name, value=netty"),
    Line(
        510,
        "server=backup/cluster-connection=my-cluster",
        "add",
        "connector-name=netty, cluster-connection-address=jms",
    ),
    Line(515, "server=default/broadcast-group=bg-group1", "list-clear", "name=connectors"),
    Line(517, "server=default/broadcast-group=bg-group1", "list-add", "name=connectors, value=netty"),
    Line(521, "server=backup/broadcast-group=bg-group1", "add", "connectors=netty, jgroups-channel=activemq-cluster"),
    Line(526, "server=default/connection-factory=RemoteConnectionFactory", "list-clear", "name=connectors"),
    Line(528, "server=default/connection-factory=RemoteConnectionFactory", "list-add", "name=connectors, value=netty"),
    Line(533, "server=backup/discovery-group=dg-group-backup", "add", "jgroups-channel=activemq-cluster"),
    Line(564, "server=default/connection-factory=RemoteConnectionFactory", "read-resource"),
    Line(568, "server=default/cluster-connection=my-cluster", "read-resource"),
    Line(
        572,
        "server=default/connection-factory=RemoteConnectionFactory",
        "write-attribute",
        "name=reconnect-attempts, value=<NEW_VALUE>",
    ),
    Line(
        582,
        "server=default/connection-factory=RemoteConnectionFactory",
        "write-attribute",
        "name=initial-connect-attempts, value=<NEW_VALUE>",
    ),
)
