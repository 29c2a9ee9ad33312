"""Everything of Artemis that is refused here or behaves otherwise: one list for the page, the command and the tests.

Each entry has the thing as users of Artemis know it, its effect here and the next step, and finds the places in an
instance directory that it concerns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from understudy.config.logins.login_config import LEFT_ASIDE
from understudy.config.reading.transport import KNOWN_PROTOCOLS, SERVED_PROTOCOLS
from understudy.dataclass import dataclass
from understudy.migration.instance import ArtemisInstance, local_name
from understudy.security.password_hashes import is_plain, is_scram
from understudy.terms import ADD_HEADERS_TRANSFORMER

_NOT_ANNOUNCED: Final = "this node would never announce itself"
Places = Callable[[ArtemisInstance], Iterable[str]]
"""The places of an instance that a difference concerns, each as ``file:line``."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something of Artemis that does not work here as it does there."""

    key: str
    """Unique short name of the difference."""
    have: str
    """The thing, as users of Artemis know it."""
    here: str
    """Effect of the difference here."""
    action: str
    """Next step of the administrator."""
    places: Places
    blocks: bool = False
    """Whether the instance cannot be used before the action was taken."""


def _nowhere(instance: ArtemisInstance) -> Iterable[str]:
    """Return no place: the difference is one of behaviour or of tools, not of a file."""
    return ()


def _elements(*names: str) -> Places:
    def places(instance: ArtemisInstance) -> Iterator[str]:
        for name in names:
            for element in instance.named(name):
                yield instance.line(element)

    return places


def _acceptors_with(test: Callable[[str], bool]) -> Places:
    def places(instance: ArtemisInstance) -> Iterator[str]:
        for element in (*instance.named("acceptor"), *instance.named("connector")):
            if test((element.text or "").strip()):
                yield instance.line(element)

    return places


def _parameters(url: str) -> dict[str, str]:
    query = url.partition("?")[2].replace("&", ";")
    return {key.strip(): value.strip() for key, _, value in (part.partition("=") for part in query.split(";"))}


def _speaks(protocol: str) -> Callable[[str], bool]:
    def test(url: str) -> bool:
        asked = _parameters(url).get("protocols", "")
        return protocol in (each.strip().upper() for each in asked.split(","))

    return test


def _is_true(parameter: str) -> Callable[[str], bool]:
    return lambda url: _parameters(url).get(parameter, "").lower() == "true"


def _jks(url: str) -> bool:
    found = _parameters(url)
    types = {found.get("keyStoreType", "").upper(), found.get("trustStoreType", "").upper()}
    paths = [found.get(name, "").lower() for name in ("keyStorePath", "trustStorePath")]
    return bool(types & {"JKS", "JCEKS"}) or any(path.endswith((".jks", ".jceks")) for path in paths)


def _own_classes(instance: ArtemisInstance) -> Iterator[str]:
    for name in ("class-name", "transformer-class-name"):
        for element in instance.named(name):
            parent = element.getparent()
            holder = "" if parent is None else local_name(parent)
            if holder not in ("transformer", "divert", "bridge"):
                continue
            if (element.text or "").strip() != ADD_HEADERS_TRANSFORMER:
                yield instance.line(element)


def _plain_users(instance: ArtemisInstance) -> Iterator[str]:
    return (f"{instance.users_file}:{entry.line}" for entry in instance.users if is_plain(entry))


def _scram_users(instance: ArtemisInstance) -> Iterator[str]:
    return (f"{instance.users_file}:{entry.line}" for entry in instance.users if is_scram(entry))


def _login_modules(instance: ArtemisInstance) -> Iterator[str]:
    return (text.partition(" ")[0] for text in instance.logins.warnings if " option " not in text)


def _ldap(instance: ArtemisInstance) -> Iterator[str]:
    return (each.ldap.place for each in instance.logins.passwords if each.ldap is not None)


def _security_manager(instance: ArtemisInstance) -> Iterator[str]:
    if instance.bootstrap.security_manager is not None:
        yield f"{instance.directory}/etc/bootstrap.xml"


def _web(instance: ArtemisInstance) -> Iterator[str]:
    return (f"{instance.directory}/etc/bootstrap.xml" for _ in instance.bootstrap.web_addresses[:1])


def _refused_password(instance: ArtemisInstance) -> Iterator[str]:
    text = "core/cluster-password: is shorter"
    return (f"{error.file}:{error.line}" for error in instance.errors if text in str(error))


def _warned(path: str, text: str) -> Places:
    """Places of warnings about an element."""

    def places(instance: ArtemisInstance) -> Iterator[str]:
        for each in instance.warnings:
            if path in each.path and text in each.message:
                yield f"{each.file}:{each.line}"

    return places


def _pairs(instance: ArtemisInstance) -> Iterator[str]:
    if instance.loaded is None or instance.loaded.configuration.ha_policy.is_pair:
        yield from _elements("ha-policy")(instance)


def _protocol(name: str) -> Difference:
    title = {"OPENWIRE": "OpenWire", "HORNETQ": "HornetQ"}.get(name, name)
    return Difference(
        f"protocol {name.lower()}",
        f"An acceptor for {title}",
        "It is not opened, or opened for CORE only, with a warning",
        "Use a client for CORE: the JMS client of Artemis or the Python client",
        _acceptors_with(_speaks(name)),
    )


DIFFERENCES: Final = (
    Difference(
        "promote",
        "A runbook that starts a backup alone, or changes `slave` to `master`, after the loss of the other node of a"
        " replicated pair",
        "A node whose data may be older than that of the other node waits, whatever the configuration says (ADR 0059)",
        "`understudy promote --accept-data-loss`, if the data of the other node is lost (docs/operate/replication.md)",
        _pairs,
    ),
    Difference(
        "cluster password",
        "A cluster password of your own with fewer than 12 characters",
        "Refused: it can be guessed",
        "Write a longer `cluster-password`, the same in all members",
        _refused_password,
        blocks=True,
    ),
    Difference(
        "default cluster password",
        "The default cluster password in a cluster: the element is absent, or says `CHANGE ME!!`",
        "Used, with a warning at each start: the default is public, so members and replicas link over loopback"
        " addresses only (ADR 0139)",
        "For members on several hosts write a `cluster-password` of your own, the same in all members",
        _warned("", "the default cluster-password is public"),
    ),
    Difference(
        "members of both kinds",
        "A cluster whose other members stay Artemis brokers",
        "Members prove the cluster password to each other without sending it, which Artemis cannot",
        "Name the connectors of members that are Artemis brokers in `artemis-members` (docs/operate/clustering.md)",
        _nowhere,
    ),
    Difference(
        "overlapping addresses",
        "Cluster connections of one server that take the same addresses",
        "Used, with a warning: a queue of another member belongs to the first cluster connection that hears of it, of"
        " those with one connector to the first in the file; messages of the address are balanced as the first in the"
        " file says",
        "Write prefixes that exclude each other, such as `news` and `!news` (docs/operate/clustering.md)",
        _warned("cluster-connection", "as well: a queue of another member"),
    ),
    Difference(
        "connectors to one acceptor",
        "Cluster connections of one server with different connectors that lead to one acceptor, or to none",
        "They share links, topology and the connector of the one that the acceptor belongs to, with a warning",
        "For links of its own an acceptor with `clusterConnection=NAME` in its URL (docs/operate/clustering.md)",
        _warned("cluster-connection", "shares links, topology and connector"),
    ),
    Difference(
        "grouping handler without a cluster connection",
        "A grouping handler whose address no cluster connection takes",
        "LOCAL decides for messages that are sent at this node only, REMOTE has no effect, with a warning",
        "Write a prefix of a cluster connection as `address` of the handler (docs/operate/clustering.md)",
        _warned("grouping-handler", "no proposal reaches the other members"),
    ),
    Difference(
        "static connectors of a replica",
        "A replicated backup whose static connectors name only itself",
        "Refused: it would never find its primary",
        "`connector-ref` is the address of this node; `static-connectors` name the other one",
        lambda instance: (f"{each.file}:{each.line}" for each in instance.errors if _NOT_ANNOUNCED in str(each)),
        blocks=True,
    ),
    Difference(
        "static connectors of a node",
        "A node of a pair with a shared store whose static connectors name only itself",
        "It takes over, but it is announced to no client, with a warning",
        "`connector-ref` is the address of this node; `static-connectors` name the other one",
        _warned("cluster-connection", _NOT_ANNOUNCED),
    ),
    Difference(
        "journal",
        "Messages in the journal of the instance",
        "Its files are not read",
        "Let consumers empty the queues, or forward them by a bridge, before the switch",
        _nowhere,
    ),
    *(_protocol(name) for name in KNOWN_PROTOCOLS if name not in SERVED_PROTOCOLS),
    Difference(
        "http",
        "`httpEnabled=true`: messages within HTTP requests",
        "Without effect, with a warning",
        "`httpUpgradeEnabled=true` in acceptor, connector and client URL",
        _acceptors_with(_is_true("httpEnabled")),
    ),
    Difference(
        "vm transport",
        "Acceptors and connectors `vm://`",
        "Acceptors are not opened; a connector leads to the first acceptor without TLS of the server, if that has an"
        " acceptor `vm://` with its number",
        "Use tcp://127.0.0.1 with a port",
        _acceptors_with(lambda url: url.lower().startswith("vm://")),
    ),
    Difference(
        "key stores",
        "Key and trust stores in the formats JKS and JCEKS",
        "Refused: only Java reads them",
        "Convert them with the `keytool` command that the error prints, or use PEM files",
        _acceptors_with(_jks),
        blocks=True,
    ),
    Difference(
        "database",
        "A store in a database (`database-store`)",
        "Refused: the data would go to files",
        "Remove the element; a pair needs a shared directory or replication",
        _elements("database-store"),
        blocks=True,
    ),
    Difference(
        "federation",
        "`federations` and AMQP `broker-connections` (mirrors, peers)",
        "Not carried out, with a warning",
        "A bridge, or a cluster connection; for a second site replication with a backup there",
        _elements("federations", "broker-connections"),
    ),
    Difference(
        "plugins",
        "`broker-plugins`, metrics plugins, connector services, interceptors",
        "Without effect, with a warning: Java classes cannot be loaded",
        "Metrics are at `/metrics`; events are notifications and log lines",
        _elements(
            "broker-plugins",
            "metrics-plugin",
            "connector-services",
            "remoting-incoming-interceptors",
            "remoting-outgoing-interceptors",
        ),
    ),
    Difference(
        "own classes",
        "Transformers of diverts and bridges of your own",
        "Refused: messages would pass unchanged",
        f"Only {ADD_HEADERS_TRANSFORMER.rpartition('.')[2]} is built in; let a client transform the others",
        _own_classes,
        blocks=True,
    ),
    Difference(
        "security plugin",
        "`security-setting-plugin`, such as LegacyLDAPSecuritySettingPlugin",
        "Refused: the permissions would be missing",
        "List the roles in `security-settings`",
        _elements("security-setting-plugin"),
        blocks=True,
    ),
    Difference(
        "login modules",
        f"Login modules {', '.join(sorted(LEFT_ASIDE))} and classes of your own in login.config",
        "Left aside, with a warning; modules for users files, LDAP, certificates and guests are used",
        "Write the users into the users file, `understudy user hash NAME` prints a line",
        _login_modules,
    ),
    Difference(
        "ldap",
        "Module LDAPLoginModule in login.config",
        "Used, except with `authentication=GSSAPI` and `referral=follow`; a session keeps the roles of its login, and a"
        " filter that finds two entries proves no user",
        "Install the extra `understudy[ldap]`; `startTls=true` or ldaps:// encrypts (docs/operate/security.md)",
        _ldap,
    ),
    Difference(
        "security manager",
        "A `security-manager` in bootstrap.xml",
        "Without effect: Java classes cannot be loaded",
        "Users and roles files beside broker.xml",
        _security_manager,
    ),
    Difference(
        "plain passwords",
        "Plain passwords in the users file",
        "Refused",
        "`understudy user convert FILE` hashes them; `understudy migrate convert` does so, too",
        _plain_users,
        blocks=True,
    ),
    Difference(
        "scram",
        "SCRAM entries in the users file",
        "Refused: no password can be verified with them",
        "`understudy user hash NAME` for the password of each of these users",
        _scram_users,
        blocks=True,
    ),
    Difference(
        "console",
        "The web console and Jolokia",
        "They do not exist",
        "`understudy status`, the management API over HTTP and over messages (docs/operate/management-api.md),"
        " `/metrics`",
        _web,
    ),
    Difference(
        "jvm",
        "Memory of the virtual machine, log4j2.properties, JMX",
        "They do not exist",
        "`global-max-size` limits messages in memory; the log goes to standard error",
        _nowhere,
    ),
)
