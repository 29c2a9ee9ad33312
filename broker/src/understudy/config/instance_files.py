"""The files of a new broker instance as text: broker.xml with comments, users and roles.

An instance is a directory with ``etc/`` (configuration), ``data/`` (the store, unless it is elsewhere) and ``run/``
(the process id while the node runs). The layout and the contents follow what ``artemis create`` writes (manual,
"Using the Server"), so an operator of Artemis finds each file under the name that they know. Writing the files is the
command line's task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import Final

from understudy.config.model import format_url
from understudy.dataclass import dataclass

CONFIG_FILE: Final = "broker.xml"
LOGIN_FILE: Final = "login.config"
BOOTSTRAP_FILE: Final = "bootstrap.xml"
USERS_FILE: Final = "artemis-users.properties"
ROLES_FILE: Final = "artemis-roles.properties"
#: Users of certificates and their roles; optional.
CERTIFICATE_USERS_FILE: Final = "cert-users.properties"
CERTIFICATE_ROLES_FILE: Final = "cert-roles.properties"
TOKEN_FILE: Final = "management-token"

_PERMISSIONS: Final = (
    "createNonDurableQueue",
    "deleteNonDurableQueue",
    "createDurableQueue",
    "deleteDurableQueue",
    "createAddress",
    "deleteAddress",
    "consume",
    "browse",
    "send",
    "manage",
)


def launcher_properties(directory: str) -> dict[str, str]:
    """Values for ``${NAME}`` in broker.xml that the script ``artemis`` of an instance in a directory defines."""
    return {
        "artemis.instance": directory,
        "artemis.instance.etc": f"{directory}/etc",
        "data.dir": f"{directory}/data",
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """Role of the node in a shared-store pair."""

    backup: bool
    """True: the node starts as the backup of its partner."""
    partner_host: str
    partner_port: int
    cluster_password: str = field(repr=False)
    """Password of the cluster, which both nodes of the pair need."""


@dataclass(frozen=True, slots=True)
class FullHa:
    """Cluster of an instance with the names that lines of the management CLI assume (profile full-ha of JBoss EAP)."""

    cluster_password: str = field(repr=False)
    """Password of the cluster, which every member needs."""


@dataclass(frozen=True, slots=True)
class InstanceOptions:
    """Options of a new instance."""

    name: str
    host: str = "127.0.0.1"
    """Host name or address that the acceptor binds and that is announced to clients; IPv6 without brackets."""
    port: int = 61616
    amqp_port: int = 0
    """Port of the acceptor for AMQP 0-9-1 alone; 0: there is none, and the other acceptor serves it too. Not with
    ``full_ha``."""
    data: str = "data"
    """Directory of the store; a relative one starts at the instance directory."""
    role: str | None = "amq"
    """The role with every permission on every address. None: the broker asks for no login."""
    queues: tuple[str, ...] = ()
    """Anycast queues to create, each with an address of the same name."""
    addresses: tuple[str, ...] = ()
    """Multicast addresses to create."""
    pair: Pair | None = None
    full_ha: FullHa | None = None
    """Make the node a member of a cluster with the names of the documents; not with ``pair``."""


def broker_xml(options: InstanceOptions) -> str:
    """The text of broker.xml, usable as it is."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<!-- docs/operate/configuration.md lists every element with its default. After a change, `understudy run`",
        "     with the option check reads the file, reports what is wrong in it and starts nothing. -->",
        '<configuration xmlns="urn:activemq">',
        *(_sockets(options) if options.full_ha is not None else ()),
        '  <core xmlns="urn:activemq:core">',
        *_server(options),
        *_transports(options),
        *(_pair(options.pair) if options.pair is not None else ()),
        *(_full_ha(options.full_ha) if options.full_ha is not None else ()),
        *(_security(options.role) if options.role is not None else ()),
        *_addresses(options),
        "  </core>",
        "</configuration>",
        "",
    ]
    return "\n".join(lines)


def users_file(user: str, password_hash: str) -> str:
    """The text of the users file with one user."""
    return (
        "# One user per line: name = ENC(...). `understudy user hash NAME` prints the line for a password.\n"
        f"{user} = {password_hash}\n"
    )


def roles_file(user: str, role: str) -> str:
    """The text of the roles file with one role."""
    return f"# One role per line: role = user, user. The permissions of a role are in {CONFIG_FILE}.\n{role} = {user}\n"


def _server(options: InstanceOptions) -> Iterator[str]:
    yield f"    <name>{_escape(options.name)}</name>"
    yield ""
    yield "    <!-- The store. Relative directories start at the instance directory. -->"
    for element, leaf in (
        ("bindings-directory", "bindings"),
        ("journal-directory", "journal"),
        ("large-messages-directory", "large-messages"),
        ("paging-directory", "paging"),
    ):
        yield f"    <{element}>{_escape(options.data)}/{leaf}</{element}>"
    yield "    <!-- Producers are blocked while the disk of the store is fuller than this, in percent. -->"
    yield "    <max-disk-usage>90</max-disk-usage>"
    yield ""
    if options.role is None:
        yield "    <!-- No login: every client that connects has all permissions. For loopback only. -->"
        yield "    <security-enabled>false</security-enabled>"
    else:
        yield f"    <!-- Users are in {USERS_FILE}, their roles in {ROLES_FILE}, beside this file. -->"
        yield "    <security-enabled>true</security-enabled>"
    yield ""


def _sockets(options: InstanceOptions) -> Iterator[str]:
    yield "  <!-- Named addresses and ports, to which acceptors, connectors and groups refer. -->"
    yield f'  <interface name="public" inet-address={_quoted(options.host)}/>'
    yield '  <socket-binding-group name="standard-sockets" default-interface="public" port-offset="0">'
    yield f'    <socket-binding name="http" port="${{port:{options.port}}}"/>'
    yield '    <socket-binding name="jgroups-udp" multicast-address="230.0.0.4" multicast-port="45688"/>'
    yield "  </socket-binding-group>"


def _transports(options: InstanceOptions) -> Iterator[str]:
    if options.full_ha is not None:
        yield "    <!-- One port for plain connections and for those that begin with an HTTP upgrade. -->"
        yield "    <acceptors>"
        yield '      <acceptor name="http-acceptor" http-listener="default"/>'
        yield "    </acceptors>"
        yield "    <connectors>"
        yield '      <connector name="http-connector" socket-binding="http" endpoint="http-acceptor"/>'
        yield "    </connectors>"
        yield ""
        return
    url = _escape(format_url(options.host, f"${{port:{options.port}}}"))
    yield "    <!-- Where clients connect. The option property of `understudy run`, port=NUMBER, changes it. -->"
    yield "    <acceptors>"
    yield f'      <acceptor name="artemis">{url}</acceptor>'
    yield from _amqp(options)
    yield "    </acceptors>"
    yield "    <!-- Addresses announced to clients and to the other node of a pair. -->"
    yield "    <connectors>"
    yield f'      <connector name="self">{url}</connector>'
    if options.pair is not None:
        partner = _escape(format_url(options.pair.partner_host, options.pair.partner_port))
        yield f'      <connector name="partner">{partner}</connector>'
    yield "    </connectors>"
    yield ""


def _amqp(options: InstanceOptions) -> Iterator[str]:
    if options.amqp_port:
        amqp = format_url(options.host, f"${{amqp.port:{options.amqp_port}}}")
        yield "      <!-- Clients of RabbitMQ use this port by default. The other acceptor serves AMQP 0-9-1 too. -->"
        yield f'      <acceptor name="amqp091">{_escape(f"{amqp}?protocols=AMQP091")}</acceptor>'


def _pair(pair: Pair) -> Iterator[str]:
    yield f"    <cluster-password>{_escape(pair.cluster_password)}</cluster-password>"
    yield "    <cluster-connections>"
    yield '      <cluster-connection name="pair">'
    yield "        <connector-ref>self</connector-ref>"
    yield "        <static-connectors>"
    yield "          <connector-ref>partner</connector-ref>"
    yield "        </static-connectors>"
    yield "      </cluster-connection>"
    yield "    </cluster-connections>"
    yield "    <!-- Two nodes, one store: the node that holds its lock is active. -->"
    yield "    <ha-policy>"
    yield "      <shared-store>"
    yield f"        <{'backup' if pair.backup else 'primary'}>"
    yield "          <!-- true: a clean stop lets the other node take over. -->"
    yield "          <failover-on-shutdown>true</failover-on-shutdown>"
    yield f"        </{'backup' if pair.backup else 'primary'}>"
    yield "      </shared-store>"
    yield "    </ha-policy>"
    yield ""


def _full_ha(preset: FullHa) -> Iterator[str]:
    group = ("        <jgroups-channel>activemq-cluster</jgroups-channel>",)
    yield f"    <cluster-password>{_escape(preset.cluster_password)}</cluster-password>"
    yield "    <!-- Members find each other by datagrams of this channel, and prove the cluster password. -->"
    yield "    <broadcast-groups>"
    yield '      <broadcast-group name="bg-group1">'
    yield from group
    yield "        <connector-ref>http-connector</connector-ref>"
    yield "      </broadcast-group>"
    yield "    </broadcast-groups>"
    yield "    <discovery-groups>"
    yield '      <discovery-group name="dg-group1">'
    yield from group
    yield "      </discovery-group>"
    yield "    </discovery-groups>"
    yield "    <cluster-connections>"
    yield '      <cluster-connection name="my-cluster">'
    yield "        <address>jms</address>"
    yield "        <connector-ref>http-connector</connector-ref>"
    yield '        <discovery-group-ref discovery-group-name="dg-group1"/>'
    yield "      </cluster-connection>"
    yield "    </cluster-connections>"
    yield "    <!-- Settings that clients can ask for. -->"
    yield "    <connection-factories>"
    yield '      <connection-factory name="RemoteConnectionFactory">'
    yield "        <connector-ref>http-connector</connector-ref>"
    yield "        <entry>java:jboss/exported/jms/RemoteConnectionFactory</entry>"
    yield "        <ha>true</ha>"
    yield "        <reconnect-attempts>-1</reconnect-attempts>"
    yield "        <block-on-acknowledge>true</block-on-acknowledge>"
    yield "      </connection-factory>"
    yield "    </connection-factories>"
    yield ""


def _security(role: str) -> Iterator[str]:
    yield "    <!-- Permissions by address. A setting replaces the settings of less specific matches completely. -->"
    yield "    <security-settings>"
    yield '      <security-setting match="#">'
    for permission in _PERMISSIONS:
        yield f'        <permission type="{permission}" roles={_quoted(role)}/>'
    yield "      </security-setting>"
    yield "    </security-settings>"
    yield ""


def _addresses(options: InstanceOptions) -> Iterator[str]:
    yield "    <!-- Settings by address. Addresses and queues are created when they are first used. -->"
    yield "    <address-settings>"
    yield '      <address-setting match="#">'
    prefix = "" if options.full_ha is None else "jms.queue."
    yield f"        <dead-letter-address>{prefix}DLQ</dead-letter-address>"
    yield f"        <expiry-address>{prefix}ExpiryQueue</expiry-address>"
    yield "        <max-delivery-attempts>10</max-delivery-attempts>"
    yield "        <address-full-policy>PAGE</address-full-policy>"
    if options.full_ha is not None:
        yield "        <max-size-bytes>10485760</max-size-bytes>"
        yield "        <page-size-bytes>2097152</page-size-bytes>"
        yield "        <redistribution-delay>1000</redistribution-delay>"
        yield "        <message-counter-history-day-limit>10</message-counter-history-day-limit>"
    yield "        <auto-create-addresses>true</auto-create-addresses>"
    yield "        <auto-create-queues>true</auto-create-queues>"
    yield "      </address-setting>"
    yield "    </address-settings>"
    yield "    <addresses>"
    for queue in dict.fromkeys((f"{prefix}DLQ", f"{prefix}ExpiryQueue", *options.queues)):
        name = _quoted(queue)
        yield f"      <address name={name}><anycast><queue name={name}/></anycast></address>"
    for address in dict.fromkeys(options.addresses):
        yield f"      <address name={_quoted(address)}><multicast/></address>"
    yield "    </addresses>"


def _escape(text: str) -> str:
    """Text of an XML element. ``xml.sax.saxutils`` would import the HTTP client of Python at each start."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _quoted(text: str) -> str:
    """Value of an XML attribute, with its quotation marks."""
    escaped = _escape(text).replace('"', "&quot;")
    return '"' + escaped.replace("\n", "&#10;").replace("\r", "&#13;").replace("\t", "&#9;") + '"'
