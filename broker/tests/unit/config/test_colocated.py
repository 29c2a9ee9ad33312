"""The element ``colocated`` and the configuration of hosted backups (artemis-ha s. 5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from understudy.config.colocated import REQUESTER, HostedBackup, StoreDirectories, hosted_configuration
from understudy.config.model import Configuration, ConnectorConfiguration, CriticalAnalyzerPolicy
from understudy.config.reader import read_broker_xml
from understudy.config.servers import LoadedConfig
from understudy.errors import ConfigError

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


def test_a_hosted_backup_with_scale_down_has_no_acceptors_and_moves_to_its_parent() -> None:
    parent = read(EXCLUDES + "<backup><scale-down/></backup>").configuration
    hosted = hosted_configuration(parent, backup(directories=StoreDirectories("/j", "/b", "/l", "/p")))
    assert hosted.acceptors == ()
    assert ports(hosted)["own"] == 61616
    assert hosted.ha_policy.scale_down is not None
    assert hosted.ha_policy.scale_down.connectors == ("own",)


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
