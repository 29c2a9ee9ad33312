"""The element ``colocated`` and the configuration of hosted backups (artemis-ha s. 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.client.core.url.parsing import connector_of
from understudy.cluster.membership.connectors import Connectors
from understudy.config.colocated import REQUESTER, HostedBackup, StoreDirectories, hosted_configuration
from understudy.config.model import Configuration, ConnectorConfiguration, CriticalAnalyzerPolicy
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError
from understudy.wire.buffer import Reader
from understudy.wire.core.transport import TransportConfiguration

XML = """<configuration><core>
<name>n</name><cluster-password>a password of this test</cluster-password>{before}
<connectors><connector name="own">tcp://a:61616?x=1</connector><connector name="other">tcp://b:61616</connector>
<connector name="web">tcp://a:8080?httpUpgradeEnabled=true</connector></connectors>
<acceptors><acceptor name="core">tcp://a:61616</acceptor>
<acceptor name="web">tcp://a:8080?httpUpgradeEnabled=true</acceptor></acceptors>
<cluster-connections><cluster-connection name="c"><connector-ref>own</connector-ref>
<static-connectors><connector-ref>other</connector-ref></static-connectors></cluster-connection></cluster-connections>
<ha-policy><{kind}><colocated>{inner}</colocated></{kind}></ha-policy>
</core></configuration>"""
EXCLUDES = "<excludes><connector-ref>other</connector-ref></excludes>"


def read(inner: str = EXCLUDES, kind: str = "shared-store", before: str = "") -> LoadedConfig:
    text = XML.format(inner=inner, kind=kind, before=before)
    return read_broker_xml(text.encode(), file="broker.xml", base_directory="/i")


def backup(place: int = 0, directories: StoreDirectories | None = None) -> HostedBackup:
    return HostedBackup(place, "id-of-a", ConnectorConfiguration("n", "far", 7, parameters={"k": "v"}), directories)


def ports(configuration: Configuration) -> dict[str, int]:
    return {each.name: each.port for each in configuration.connectors}


def test_defaults_are_those_of_artemis() -> None:
    loaded = read()
    colocated = loaded.configuration.ha_policy.colocated
    assert colocated is not None
    assert (colocated.request_backup, colocated.backup_request_retries) == (False, -1)
    assert (colocated.backup_request_retry_interval_ms, colocated.max_backups) == (5000, 1)
    assert (colocated.backup_port_offset, colocated.excludes) == (100, ("other",))
    assert loaded.configuration.ha_policy.role.value == "primary"
    assert colocated.backup.role.value == "backup"
    assert not loaded.warnings


def test_a_hosted_backup_of_a_shared_store_uses_the_directories_of_the_requester() -> None:
    parent = read(before="<journal-retention-directory>r</journal-retention-directory>").configuration
    shared = StoreDirectories("/s/j", "/s/b", "/s/l", "/s/p")
    hosted = hosted_configuration(parent, backup(directories=shared))
    assert hosted.name == "colocated_backup_01"
    assert StoreDirectories.of(hosted) == shared
    assert hosted.node_manager_lock_directory == "/s/j"
    assert hosted.journal_retention_directory is None
    assert hosted.ha_policy.colocated is None
    assert not hosted.ha_policy.restart_backup
    assert hosted.critical_analyzer_policy is not CriticalAnalyzerPolicy.HALT


def test_a_hosted_replica_has_directories_beside_those_of_its_parent() -> None:
    parent = read(kind="replication", inner=EXCLUDES + "<backup><group-name>g</group-name></backup>").configuration
    hosted = hosted_configuration(parent, backup(1))
    assert hosted.name == "colocated_backup_11"
    assert hosted.journal_directory == f"{parent.journal_directory}colocated_backup_11"
    assert len(set(StoreDirectories.of(hosted).named())) == 4
    assert hosted.ha_policy.replication is not None
    assert (hosted.ha_policy.replication.of_node, hosted.ha_policy.replication.group_name) == ("id-of-a", "g")


def test_ports_are_shifted_except_for_excluded_connectors_and_http_upgrades() -> None:
    hosted = hosted_configuration(read().configuration, backup(1))
    assert ports(hosted) == {"own": 61816, "other": 61616, "web": 8080, REQUESTER: 7}
    assert {each.name: each.port for each in hosted.acceptors} == {"core": 61816, "web": 8080}
    assert hosted.connector("own").parameters == {"x": "1", "activemqServerName": "colocated_backup_11"}
    assert "activemqServerName" not in hosted.connector("other").parameters
    assert REQUESTER in hosted.cluster_connections[0].static_connectors


def test_a_transport_that_is_not_offset_keeps_its_port() -> None:
    parent = read().configuration
    kept = replace(parent.connector("own"), parameters={"doNotOffset": True})
    parent = replace(parent, connectors=(kept, *(each for each in parent.connectors if each.name != "own")))
    hosted = hosted_configuration(parent, backup())
    assert hosted.connector("own").port == parent.connector("own").port
    assert hosted.connector("own").parameters["doNotOffset"] is True
    # clients and other members get it in the topology, and connect to the port that it names
    announced = Connectors(hosted.connectors).transport("own")
    assert announced.parameters["doNotOffset"] is True
    received = TransportConfiguration.read_from(Reader(announced.encode()))
    followed = connector_of(received.parameters)
    assert followed is not None
    assert followed.port == parent.connector("own").port
    text = '<connectors><connector name="c">tcp://h:1?doNotOffset=true</connector></connectors>'
    loaded = read_broker_xml(f"<configuration><core>{text}</core></configuration>".encode(), file="f")
    assert loaded.configuration.connector("c").parameters == {"doNotOffset": True}


def test_a_hosted_backup_with_scale_down_has_no_acceptors_and_moves_to_its_parent() -> None:
    parent = read(EXCLUDES + "<backup><scale-down/></backup>").configuration
    hosted = hosted_configuration(parent, backup(directories=StoreDirectories("/j", "/b", "/l", "/p")))
    assert hosted.acceptors == ()
    assert ports(hosted)["own"] == 61616
    assert hosted.ha_policy.scale_down is not None
    assert hosted.ha_policy.scale_down.connectors == ("own",)


#: "A typical configuration" of scale-down and backups in the HA document of EAP, as it is printed there.
TYPICAL = """
<backup-request-retries>44</backup-request-retries>
<backup-request-retry-interval>33</backup-request-retry-interval>
<max-backups>3</max-backups>
<request-backup>false</request-backup>
<backup-port-offset>33</backup-port-offset>
<master>
<group-name>purple</group-name>
<check-for-live-server>true</check-for-live-server>
<cluster-name>abcdefg</cluster-name>
</master>
<slave>
<group-name>tiddles</group-name>
<max-saved-replicated-journals-size>22</max-saved-replicated-journals-size>
<cluster-name>33rrrrr</cluster-name>
<restart-backup>false</restart-backup>
<scale-down>
<!--a grouping of servers that can be scaled down to-->
<group-name>boo!</group-name>
<!--either a discovery group-->
<discovery-group-ref discovery-group-name="wahey"/>
</scale-down>
</slave>
"""


def test_the_typical_configuration_of_scale_down_and_backups_is_usable() -> None:
    group = "<group-address>231.7.7.7</group-address><group-port>9876</group-port>"
    before = f'<discovery-groups><discovery-group name="wahey">{group}</discovery-group></discovery-groups>'
    text = XML.format(inner=TYPICAL, kind="replication", before=before)
    clusters = [
        f'<cluster-connection name="{name}"><address>{address}</address><connector-ref>own</connector-ref>'
        "<static-connectors><connector-ref>other</connector-ref></static-connectors></cluster-connection>"
        for name, address in (("abcdefg", "a"), ("33rrrrr", "b"))
    ]
    begin, end = text.index("<cluster-connections>"), text.index("</cluster-connections>")
    text = text[:begin] + "<cluster-connections>" + "".join(clusters) + text[end:]
    parent = read_broker_xml(text.encode(), file="broker.xml", base_directory="/i").configuration
    colocated = parent.ha_policy.colocated
    assert colocated is not None
    hosted = hosted_configuration(parent, backup())
    assert hosted.acceptors == ()
    assert hosted.ha_policy.moves_instead_of_serving
    found = hosted.ha_policy.scale_down
    assert found is not None
    assert (found.group_name, found.discovery_group, found.host) == ("boo!", "wahey", "own")
    assert hosted.ha_policy.replication is not None
    assert hosted.ha_policy.replication.max_saved_replicated_journals_size == 22


def test_a_hosted_replica_that_moves_its_messages_knows_its_host_as_a_member() -> None:
    parent = read(EXCLUDES + "<backup><scale-down/></backup>", kind="replication").configuration
    hosted = hosted_configuration(parent, backup())
    assert "own" in hosted.cluster_connections[0].static_connectors
    off = "<backup><scale-down><enabled>false</enabled></scale-down></backup>"
    hosted = hosted_configuration(read(EXCLUDES + off, kind="replication").configuration, backup())
    assert hosted.acceptors, "it serves"
    assert "own" not in hosted.cluster_connections[0].static_connectors


def test_no_artemis_broker_keeps_the_record_of_a_pair_that_votes() -> None:
    text = XML.format(inner=EXCLUDES + "<backup><scale-down/></backup>", kind="replication", before="")
    member = "<artemis-members><connector-ref>other</connector-ref></artemis-members>"
    text = text.replace("</static-connectors>", f"</static-connectors>{member}")
    with pytest.raises(ConfigError, match="no Artemis broker keeps the record of it"):
        read_broker_xml(text.encode(), file="broker.xml")


@pytest.mark.parametrize(("inner", "text"), [
    ("<backup-port-offset>0</backup-port-offset>", "would both listen on port 61616"),
    ("<backup-port-offset>4000</backup-port-offset>", "the highest is 65535"),
    ("<excludes><connector-ref>own</connector-ref></excludes>", "a hosted backup needs one of its own"),
    ("<excludes><connector-ref>nowhere</connector-ref></excludes>", "there is no connector 'nowhere'"),
    ("<max-backups>65</max-backups>", "outside 0 to 64"),
    ("<backup-request-retry-interval>0</backup-request-retry-interval>", "outside 1"),
])  # fmt: skip
def test_a_bad_value_is_refused_with_its_place(inner: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as error:
        read(inner)
    assert "colocated" in error.value.path
    assert error.value.line is not None


def test_a_lock_directory_that_a_request_does_not_name_is_refused() -> None:
    lock = "<node-manager-lock-directory>locks</node-manager-lock-directory>"
    with pytest.raises(ConfigError, match="names no such directory"):
        read("<request-backup>true</request-backup>" + EXCLUDES, before=lock)
    read(EXCLUDES, before=lock)


def test_a_static_connector_that_is_not_excluded_is_warned_of() -> None:
    assert any("'other'" in str(each) for each in read("").warnings)


def test_the_connector_of_the_requester_belongs_to_the_cluster_connection_on_which_it_asked() -> None:
    parent = read().configuration
    (first,) = parent.cluster_connections
    second = replace(first, name="second", connector_ref="web")
    both = replace(parent, cluster_connections=(first, second))
    hosted = hosted_configuration(both, backup(directories=StoreDirectories("/b", "/j", "/l", "/p")))
    found = {each.name: each.static_connectors for each in hosted.cluster_connections}
    assert found == {"c": ("other", REQUESTER), "second": ("other",)}
