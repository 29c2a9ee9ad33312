"""Several servers in one broker.xml, and included files (ADR 0075)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from understudy.config.model import Configuration, CriticalAnalyzerPolicy
from understudy.config.reading import document as document_module
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError

FILE = "/srv/node/etc/broker.xml"


def store(name: str) -> str:
    """The directories of a server."""
    kinds = ("bindings", "journal", "large-messages", "paging")
    return "".join(f"<{kind}-directory>{name}/{kind}</{kind}-directory>" for kind in kinds)


def transports(port: int, query: str = "", name: str = "netty", host: str = "h") -> str:
    """An acceptor and a connector of the name ``own`` to it, in a cluster with another node."""
    own = query.replace("?", "?activemqServerName=backup;") if query else ""
    return (
        "<cluster-password>a password of this test</cluster-password>"
        f'<connectors><connector name="own">tcp://{host}:{port}{own}</connector>'
        '<connector name="other">tcp://far:1</connector></connectors>'
        f'<acceptors><acceptor name="{name}">tcp://{host}:{port}{query}</acceptor></acceptors>'
        '<cluster-connections><cluster-connection name="c"><connector-ref>own</connector-ref>'
        "<static-connectors><connector-ref>other</connector-ref></static-connectors></cluster-connection>"
        "</cluster-connections>"
    )


def policy(kind: str, inside: str = "") -> str:
    outer, inner = kind.split("/")
    return f"<ha-policy><{outer}><{inner}>{inside}</{inner}></{outer}></ha-policy>"


MAIN = store("a") + transports(5445) + policy("shared-store/primary")
BACKUP = store("b") + transports(5446) + policy("shared-store/backup")


def text(main: str = MAIN, backup: str = BACKUP, attributes: str = 'name="backup"', more: str = "") -> str:
    """``core`` on line 2, ``server`` on line 3."""
    return (
        '<configuration xmlns="urn:activemq" xmlns:xi="http://www.w3.org/2001/XInclude">\n'
        f"<core><name>main</name>{main}</core>\n<server {attributes}>{backup}</server>\n{more}</configuration>"
    )


def read(data: str, files: Mapping[str, str] | None = None) -> LoadedConfig:
    def read_file(name: str) -> bytes:
        if files is None or name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name].encode()

    return read_broker_xml(data.encode(), file=FILE, base_directory="/srv/node", read_file=read_file)


def fails(data: str, files: Mapping[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(data, files)
    return caught.value


def backup_of(loaded: LoadedConfig) -> Configuration:
    return loaded.server("backup")


def test_a_server_is_read_like_core_and_inherits_nothing() -> None:
    extra = "<graceful-shutdown-enabled>true</graceful-shutdown-enabled>"
    loaded = read(text(MAIN + extra, attributes='name="backup" management="127.0.0.1:9000"'))
    assert [each.name for each in loaded.configurations()] == ["main", "backup"]
    backup = backup_of(loaded)
    assert backup.journal_directory == "/srv/node/b/journal"
    assert backup.ha_policy.is_backup
    assert loaded.configuration.graceful_shutdown_enabled
    assert not backup.graceful_shutdown_enabled
    assert loaded.servers[0].management == "127.0.0.1:9000"
    assert loaded.server(None) is loaded.configuration
    with pytest.raises(ConfigError, match="no server 'x'"):
        loaded.server("x")
    assert not loaded.warnings


def test_both_machines_of_the_layout_of_the_documents_can_be_read() -> None:
    """reference/001: group1 and group2, crosswise on the two machines."""
    for own, other in (("group1", "group2"), ("group2", "group1")):
        main = store("a") + transports(5445)
        main += policy(
            "replication/primary",
            f"<group-name>{own}</group-name><cluster-name>c</cluster-name>"
            "<check-for-active-server>true</check-for-active-server>",
        )
        backup = store("b") + transports(5446) + policy("replication/backup", f"<group-name>{other}</group-name>")
        loaded = read(text(main, backup))
        replication = backup_of(loaded).ha_policy.replication
        assert replication is not None
        assert replication.group_name == other


def test_halt_would_end_all_servers() -> None:
    halt = "<critical-analyzer-policy>HALT</critical-analyzer-policy>"
    loaded = read(text(MAIN + halt, BACKUP + halt))
    for each in loaded.configurations():
        assert each.critical_analyzer_policy is CriticalAnalyzerPolicy.SHUTDOWN
    assert [warning.path.partition("/")[0] for warning in loaded.warnings] == ["core", "server[@name='backup']"]


def test_acceptors_of_a_shared_port_take_the_requests_that_name_their_server() -> None:
    upgrade = "?httpUpgradeEnabled=true"
    main = store("a") + transports(8080, upgrade).replace("activemqServerName=backup", "activemqServerName=main")
    loaded = read(text(main, store("b") + transports(8080, upgrade)))
    assert backup_of(loaded).acceptors[0].parameters["activemqServerName"] == "backup"
    assert "activemqServerName" not in loaded.configuration.acceptors[0].parameters


UPGRADE = "?httpUpgradeEnabled=true"
CASES = {
    "a name twice": (text(attributes='name="main"'), "'main' stands twice, first on line 2", 3),
    "no name": (text(attributes=""), "attribute 'name' is missing", 3),
    "a name that is a path": (text(attributes='name="../x"'), "name '../x': 1 to 64 letters", 3),
    "a management address": (text(attributes='name="backup" management="here"'), "management 'here'", 3),
    "the same store": (
        text(backup=store("a") + transports(5446)),
        "bindings-directory /srv/node/a/bindings and bindings-directory /srv/node/a/bindings of server 'main' overlap",
        3,
    ),
    "the directories of the default": (text("", ""), "/srv/node/data/bindings of server 'main' overlap", 3),
    "a store in the other": (text(backup=store("a/journal/x")), "of server 'main' overlap", 3),
    "a lock directory of the other": (
        text(backup=BACKUP + "<node-manager-lock-directory>a/journal</node-manager-lock-directory>"),
        "node-manager-lock-directory /srv/node/a/journal and journal-directory",
        3,
    ),
    "a port twice": (
        text(backup=store("b") + transports(5445)),
        "acceptor 'netty' of server 'main' listens on port 5445 already",
        3,
    ),
    "a port twice on all addresses": (
        text(backup=store("b") + transports(5445, host="0.0.0.0")),
        "acceptor 'netty' of server 'main' listens on port 5445 already",
        3,
    ),
    "a port with an upgrade at one of them": (
        text(backup=store("b") + transports(5445, UPGRADE)),
        "acceptor 'netty' of server 'main' listens on port 5445 already",
        3,
    ),
    "a shared port with two hosts": (
        text(store("a") + transports(80, UPGRADE), store("b") + transports(80, UPGRADE, host="0.0.0.0")),
        "acceptors that share a port have one host",
        3,
    ),
    "the connector of another server": (
        text(MAIN, BACKUP.replace('name="own"', 'name="mine"')),
        "there is no connector 'own' (that of server 'main' is not known here)",
        3,
    ),
    "the address of another server": (
        text(MAIN, BACKUP.replace('name="own">tcp://h:5446', 'name="own">tcp://h:5445')),
        "connector 'own' is the address of server 'main'",
        3,
    ),
    "a connector to the main server": (
        text(
            store("a") + transports(80, UPGRADE),
            store("b") + transports(80, UPGRADE).replace("activemqServerName=backup;", "activemqServerName=main;"),
        ),
        "connector 'own' leads to server 'main', not to 'backup'",
        3,
    ),
    "an acceptor of another server": (
        text(
            backup=store("b")
            + transports(80, UPGRADE).replace(f"{UPGRADE}</acc", f"{UPGRADE};activemqServerName=x</acc")
        ),
        "activemqServerName=x is not the name of the server, 'backup'",
        3,
    ),
    "two servers of replication without groups": (
        text(
            store("a") + transports(5445) + policy("replication/primary", "<check-for-active-server>true"
            "</check-for-active-server>"),
            store("b") + transports(5446) + policy("replication/backup"),
        ),
        "server 'main' has no group-name as well: a backup could copy the server beside it",
        3,
    ),
    "requested backups as well": (
        text(MAIN.replace("<primary></primary>", "<colocated/>")),
        "colocated is not possible in a file with several servers",
        2,
    ),
    "no persistence": (
        text(backup=store("b") + "<persistence-enabled>false</persistence-enabled>"),
        "false is not possible in a file with several servers",
        3,
    ),
    "a name as an element": (text(backup="<name>x</name>"), "misplaced element 'name'", 3),
    "two core elements": (text(more="<core/>"), "2 core elements, exactly one wanted", 4),
    "another element": (text(more="<acceptors/>"), "unknown element 'acceptors'", 4),
}  # fmt: skip


@pytest.mark.parametrize(("data", "says", "line"), CASES.values(), ids=CASES.keys())
def test_an_error_names_the_element_and_the_line(data: str, says: str, line: int) -> None:
    error = fails(data)
    assert says in str(error)
    assert (error.file, error.line) == (FILE, line)


# --- included files ----------------------------------------------------------------------------------------------

SETTINGS = (
    '<address-settings>\n<address-setting match="#"><max-size-bytes>{0}</max-size-bytes></address-setting>'
    "</address-settings>"
)
COMMON = '<xi:include href="common.xml"/>'
PLACE = "/srv/node/etc/common.xml"


def test_servers_include_a_common_file() -> None:
    loaded = read(text(MAIN + COMMON, BACKUP + COMMON), {PLACE: SETTINGS.format(7)})
    for each in loaded.configurations():
        assert [(found.match, found.max_size_bytes) for found in each.address_settings] == [("#", 7)]
    assert loaded.included == (PLACE,)


def test_an_included_file_includes_files_beside_it() -> None:
    files = {
        "/srv/node/etc/more/all.xml": '<address-settings xmlns:xi="http://www.w3.org/2001/XInclude">'
        '<xi:include href="one.xml"/></address-settings>',
        "/srv/node/etc/more/one.xml": '<address-setting match="a"/>',
    }
    loaded = read(text(MAIN + '<xi:include href="more/all.xml"/>'), files)
    assert [each.match for each in loaded.configuration.address_settings] == ["a"]
    assert loaded.included == tuple(files)


def test_a_whole_server_can_be_included() -> None:
    data = text(more='<xi:include href="third.xml"/>')
    loaded = read(data, {"/srv/node/etc/third.xml": f'<server name="third">{store("c")}</server>'})
    assert [each.name for each in loaded.configurations()] == ["main", "backup", "third"]


def test_an_error_in_an_included_file_names_that_file() -> None:
    error = fails(text(MAIN + COMMON), {PLACE: SETTINGS.format("many")})
    assert (error.file, error.line) == (PLACE, 2)
    assert error.path.startswith("core/address-settings/address-setting[@match='#']")
    wrong = '<address-settings><address-setting match="a"/>\n\n<address-setting match="#x"/></address-settings>'
    error = fails(text(MAIN + COMMON), {PLACE: wrong})
    assert (error.file, error.line) == (PLACE, 3)


INCLUDES = {
    "a file that is missing": (COMMON, {}, "/srv/node/etc/common.xml cannot be read: No such file or directory"),
    "a URL": ('<xi:include href="http://x/y"/>', {}, "'http://x/y' is no file"),
    "nothing": ("<xi:include/>", {}, "'' is no file"),
    "another attribute": ('<xi:include href="a" parse="text"/>', {}, "attribute 'parse' is not supported"),
    "a fallback": ('<xi:include href="a"><xi:fallback/></xi:include>', {}, "an element in it is not supported"),
    "a fallback alone": ("<xi:fallback/>", {}, "fallback of XInclude is not possible here"),
    "itself": (
        COMMON,
        {PLACE: '<address-settings xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="common.xml"/>'
                "</address-settings>"},
        "/srv/node/etc/common.xml includes itself",
    ),
    "an include only": (
        COMMON,
        {PLACE: '<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="common.xml"/>'},
        "include of XInclude is not possible here",
    ),
    "no XML": (COMMON, {PLACE: "x"}, "not well-formed XML"),
    "a file that does not belong there": (COMMON, {PLACE: "<permission/>"}, "misplaced element 'permission'"),
}  # fmt: skip


@pytest.mark.parametrize(("element", "files", "says"), INCLUDES.values(), ids=INCLUDES.keys())
def test_an_include_that_cannot_be_used_is_an_error(element: str, files: dict[str, str], says: str) -> None:
    assert says in str(fails(text(MAIN + element), files))


def test_all_files_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise few small files that include each other twice would be large."""
    data = text(MAIN + COMMON)
    monkeypatch.setattr(document_module, "CONFIG_BYTES_MAX", len(data) + 10)
    assert f"bytes, limit {len(data) + 10}" in str(fails(data, {PLACE: SETTINGS.format(7)}))


def test_includes_need_a_reader_of_files() -> None:
    with pytest.raises(ConfigError, match="includes are not read"):
        read_broker_xml(text(MAIN + COMMON).encode(), file=FILE)


@pytest.mark.parametrize("written", ["", "?activemqServerName=main;"])
def test_a_connector_with_http_upgrades_names_its_server(written: str) -> None:
    transport = transports(5445, "?httpUpgradeEnabled=true").replace("?activemqServerName=backup;", written or "?")
    core = f"<core><name>main</name>{store('a')}{transport}{policy('shared-store/primary')}</core>"
    found = read(f'<configuration xmlns="urn:activemq">{core}</configuration>')
    own = found.configuration.connector(found.configuration.cluster_connections[0].connector_ref)
    assert own.parameters["activemqServerName"] == "main"
    assert not [each for each in found.warnings if "activemqServerName" in str(each)]
