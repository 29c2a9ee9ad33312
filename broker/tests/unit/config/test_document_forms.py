"""Forms of configuration that the documents about high availability and clusters show, through ``run --check``.

The examples are our own, with the elements and attributes that the documents use. Each is usable, or on the list of
those that are refused, with the reason. The names of rows are those of docs/build/coverage.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click.testing
import pytest

from support.config import read
from understudy.cli.node.run import run
from understudy.client.core.url.parsing import parse_url
from understudy.config.schema.schema import element_at

LOGIN: Final = "<cluster-user>members</cluster-user><cluster-password>a password of these members</cluster-password>"
CONNECTORS: Final = """<connectors><connector name="here">tcp://127.0.0.1:5445</connector>
  <connector name="there">tcp://127.0.0.1:5446</connector></connectors>
  <acceptors><acceptor name="here">tcp://127.0.0.1:5445</acceptor></acceptors>"""
CLUSTER: Final = f"""{LOGIN}{CONNECTORS}<cluster-connections><cluster-connection name="all">
  <connector-ref>here</connector-ref><static-connectors><connector-ref>there</connector-ref></static-connectors>
  </cluster-connection></cluster-connections>"""
ZOOKEEPER: Final = "org.apache.activemq.artemis.quorum.zookeeper.CuratorDistributedPrimitiveManager"
MANAGER: Final = f"""<manager><class-name>{ZOOKEEPER}</class-name><properties>
  <property key="connect-string" value="127.0.0.1:6666,127.0.0.1:6667,127.0.0.1:6668"/></properties></manager>"""
UDP: Final = "<group-address>231.7.7.7</group-address><group-port>9876</group-port>"
JGROUPS: Final = "<jgroups-file>stack.xml</jgroups-file><jgroups-channel>members</jgroups-channel>"
#: A stack over TCP with a directory of addresses and properties of the environment, beside broker.xml.
STACK: Final = """<config xmlns="urn:org:jgroups">
  <TCP bind_addr="127.0.0.1" bind_port="7800" external_addr="${host.address}" recv_buf_size="20M"/>
  <FILE_PING location="../members"/><MERGE3/><FD_SOCK/><VERIFY_SUSPECT/><pbcast.NAKACK2/><pbcast.GMS/>
</config>"""


def policy(inside: str, *, before: str = CLUSTER) -> str:
    return f"{before}<ha-policy>{inside}</ha-policy>"


def connection(inside: str, before: str = CONNECTORS) -> str:
    element = f'<cluster-connection name="all"><connector-ref>here</connector-ref>{inside}</cluster-connection>'
    return f"{LOGIN}{before}<cluster-connections>{element}</cluster-connections>"


def addressed(*texts: str) -> str:
    """Cluster connections, each with its own text for addresses and its own connector."""
    made = "".join(
        f"""<cluster-connection name="c{number}"><address>{text}</address><connector-ref>here</connector-ref>
        <static-connectors><connector-ref>there</connector-ref></static-connectors></cluster-connection>"""
        for number, text in enumerate(texts)
    )
    return f"{LOGIN}{CONNECTORS}<cluster-connections>{made}</cluster-connections>"


ALL_OF_A_CONNECTION: Final = """<check-period>1000</check-period><connection-ttl>5000</connection-ttl>
  <min-large-message-size>50000</min-large-message-size><call-timeout>5000</call-timeout>
  <retry-interval>500</retry-interval><retry-interval-multiplier>1.0</retry-interval-multiplier>
  <max-retry-interval>5000</max-retry-interval><initial-connect-attempts>-1</initial-connect-attempts>
  <reconnect-attempts>-1</reconnect-attempts><use-duplicate-detection>true</use-duplicate-detection>
  <message-load-balancing>STRICT</message-load-balancing><max-hops>1</max-hops>
  <confirmation-window-size>32000</confirmation-window-size><call-failover-timeout>30000</call-failover-timeout>
  <notification-interval>1000</notification-interval><notification-attempts>2</notification-attempts>"""
DISCOVERED: Final = f"""<discovery-groups><discovery-group name="found">
  <local-bind-address>127.0.0.1</local-bind-address>{UDP}<refresh-timeout>10000</refresh-timeout>
  </discovery-group></discovery-groups>"""
BROADCAST: Final = f"""<broadcast-groups><broadcast-group name="told"><local-bind-address>127.0.0.1</local-bind-address>
  <local-bind-port>5432</local-bind-port>{UDP}<broadcast-period>2000</broadcast-period>
  <connector-ref>here</connector-ref></broadcast-group></broadcast-groups>"""
COLOCATED: Final = """<request-backup>true</request-backup><max-backups>1</max-backups>
  <backup-request-retries>-1</backup-request-retries>
  <backup-request-retry-interval>5000</backup-request-retry-interval><backup-port-offset>100</backup-port-offset>
  <excludes><connector-ref>there</connector-ref></excludes>"""
TYPICAL: Final = f"""{LOGIN}{CONNECTORS}<cluster-connections>
  <cluster-connection name="one"><address>east</address><connector-ref>here</connector-ref>
  <static-connectors><connector-ref>there</connector-ref></static-connectors></cluster-connection>
  <cluster-connection name="two"><address>west</address><connector-ref>here</connector-ref>
  <static-connectors><connector-ref>there</connector-ref></static-connectors></cluster-connection>
  </cluster-connections>"""

USABLE: Final = {
    "C14 replication master": policy("<replication><master/></replication>"),
    "C15 shared store slave": policy("<shared-store><slave/></shared-store>"),
    "C16 colocated replication": policy("<replication><colocated/></replication>"),
    "C17 replication primary": policy("<replication><primary/></replication>"),
    "C18 replication backup": policy("<replication><backup/></replication>"),
    "C11 elements of the root": f"{CLUSTER}<backup>true</backup><shared-store>true</shared-store>",
    "C10 live only": policy("<live-only/>", before=""),
    "C40 master and its cluster": policy("<replication><master><group-name>g</group-name></master></replication>"),
    "C41 slave": policy("<replication><slave><cluster-name>all</cluster-name></slave></replication>"),
    "C54 manager of the primary": policy(f"<replication><primary>{MANAGER}</primary></replication>"),
    "C55 manager of the backup": policy(
        f"<replication><backup>{MANAGER}<allow-failback>true</allow-failback></backup></replication>"
    ),
    "C72 peers": policy(
        f"<replication><primary>{MANAGER}<coordination-id>peer-journal-001</coordination-id></primary></replication>"
    ),
    "C84 manager beside the backup": policy(
        f"<replication>{MANAGER}<backup><allow-failback>true</allow-failback></backup></replication>"
    ),
    "C87 manager beside the primary": policy(f"<replication>{MANAGER}<primary/></replication>"),
    "C76 shared store master": policy("<shared-store><master/></shared-store>"),
    "C82 old spelling of failback": policy(
        "<shared-store><slave><allow-fail-back>true</allow-fail-back></slave></shared-store>"
    ),
    "C83 slave that gives back": policy(
        "<replication><slave><allow-failback>true</allow-failback></slave></replication>"
    ),
    "C86 check for live server": policy(
        "<replication><master><check-for-live-server>true</check-for-live-server></master></replication>"
    ),
    "C91 failover on shutdown": policy(
        "<shared-store><master><failover-on-shutdown>true</failover-on-shutdown></master></shared-store>"
    ),
    "C95 wait for activation": policy(
        "<shared-store><primary><wait-for-activation>false</wait-for-activation></primary></shared-store>"
    ),
    "C102 colocated with all elements": policy(
        f"<replication><colocated>{COLOCATED}<master/><slave/></colocated></replication>"
    ),
    "C107 excluded connectors": policy(
        f"<shared-store><colocated>{COLOCATED}<master/><slave/></colocated></shared-store>"
    ),
    "C118 scale down by connectors": policy(
        """<live-only><scale-down><connectors><connector-ref>there</connector-ref></connectors></scale-down>
        </live-only>"""
    ),
    "C120 scale down by discovery": policy(
        """<live-only><scale-down><discovery-group-ref discovery-group-name="found"/></scale-down></live-only>""",
        before=CLUSTER + DISCOVERED,
    ),
    "C121 scale down in a group": policy("<live-only><scale-down><group-name>g</group-name></scale-down></live-only>"),
    "C122 shared store slave that scales down": policy("<shared-store><slave><scale-down/></slave></shared-store>"),
    "A82 group of a pair": policy(
        """<replication><master><group-name>group1</group-name><check-for-live-server>true</check-for-live-server>
        </master></replication>"""
    ),
    "E13 broadcast group": CONNECTORS + BROADCAST,
    "E21 JGroups broadcast group": f"""{CONNECTORS}<broadcast-groups><broadcast-group name="told">{JGROUPS}
        <connector-ref>here</connector-ref></broadcast-group></broadcast-groups>""",
    "E31 discovery group": DISCOVERED,
    "E37 JGroups discovery group": f"""<discovery-groups><discovery-group name="found">{JGROUPS}
        <refresh-timeout>10000</refresh-timeout></discovery-group></discovery-groups>""",
    "E54 all elements of a cluster connection": connection(
        ALL_OF_A_CONNECTION + '<discovery-group-ref discovery-group-name="found"/>', CONNECTORS + DISCOVERED
    ),
    "E59 addresses eu": addressed("eu"),
    "E59 addresses not eu": addressed("!eu"),
    "E59 addresses of two": addressed("eu.uk,eu.de"),
    "E59 addresses without one": addressed("eu,!eu.uk"),
    "E58 addresses that overlap": addressed("europe", "europe.news"),
    "E57 two cluster connections": addressed("orders", "news"),
    "E84 cluster by discovery": connection(
        '<discovery-group-ref discovery-group-name="found"/>', CONNECTORS + DISCOVERED
    ),
    "E85 static connectors": CLUSTER,
    "E86 default login of a cluster": CLUSTER.replace(LOGIN, ""),
    "E92 direct connections only": connection(
        """<message-load-balancing>STRICT</message-load-balancing>
        <static-connectors allow-direct-connections-only="true"><connector-ref>there</connector-ref>
        </static-connectors>"""
    ),
    "E93 direct connections to no member": connection('<static-connectors allow-direct-connections-only="true"/>'),
    "E97 redistribution delay": """<address-settings><address-setting match="#">
        <redistribution-delay>0</redistribution-delay></address-setting></address-settings>""",
    "E104 scale down by discovery": policy(
        """<live-only><scale-down><enabled>true</enabled><discovery-group-ref discovery-group-name="found"/>
        </scale-down></live-only>""",
        before=CLUSTER + DISCOVERED,
    ),
    "Z1 upgrade of HTTP": f"""{LOGIN}<connectors>
        <connector name="here">tcp://127.0.0.1:8080?httpUpgradeEnabled=true;activemqServerName=one</connector>
        </connectors><acceptors><acceptor name="here">tcp://127.0.0.1:8080?httpUpgradeEnabled=true</acceptor>
        </acceptors>""",
}
#: Forms that are refused, with the beginning of the reason.
REFUSED: Final = {
    "C8 replication without a role": (
        policy("<replication/>"),
        "write <replication><primary/></replication> in one node of a pair, <replication><backup/></replication> in",
    ),
    "C9 shared store without a role": (
        policy("<shared-store/>"),
        "write <shared-store><primary/></shared-store> in one node of a pair, <shared-store><backup/></shared-store>",
    ),
    "C26 replication without a cluster": (
        policy("<replication><primary/></replication>", before=CONNECTORS),
        "replication needs a cluster-connection",
    ),
    "E17 reserved multicast address": (
        DISCOVERED.replace("231.7.7.7", "224.0.0.0"),
        "224.0.0.0",
    ),
    "E23 both kinds of a group": (
        f'<discovery-groups><discovery-group name="found">{UDP}{JGROUPS}</discovery-group></discovery-groups>',
        "exclude each other",
    ),
    "E61 cluster connection without a connector": (
        f'{LOGIN}<cluster-connections><cluster-connection name="all"/></cluster-connections>',
        "connector-ref",
    ),
}


POLICIES: Final = "org.apache.activemq.artemis.api.core.client.loadbalance"
#: Forms of client URLs: the number of connectors, and attempts to reconnect.
URLS: Final = {
    "A135 intervals": (
        "tcp://127.0.0.1:8080?retryInterval=1000&retryIntervalMultiplier=1.5&maxRetryInterval=6000",
        1,
        0,
    ),
    "A135 attempts": ("tcp://127.0.0.1:8080?reconnectAttempts=1000", 1, 1000),
    "C143 named connectors": (
        "(tcp://127.0.0.1:61616?name=node-0,tcp://127.0.0.1:61617?name=node-1)?ha=true&reconnectAttempts=-1",
        2,
        -1,
    ),
    "E39 discovery": ("udp://231.7.7.7:9876", 0, 0),
    "E42 refresh timeout": ("udp://231.7.7.7:9876?refreshTimeout=5000", 0, 0),
    "E43 initial wait": ("udp://231.7.7.7:9876?initialWaitTimeout=5000", 0, 0),
    "E47 static list": ("(tcp://one.example:61616,tcp://two.example:61616)?reconnectAttempts=5", 2, 5),
    "E90 policy": (
        f"tcp://127.0.0.1:61616?connectionLoadBalancingPolicyClassName={POLICIES}.RandomConnectionLoadBalancingPolicy",
        1,
        0,
    ),
    # the client of this project fails over by default where a URL names several hosts (ADR 0143)
    "E91 without topology": ("(tcp://127.0.0.1:1,tcp://127.0.0.1:2)?useTopologyForLoadBalancing=false", 2, -1),
}


def check(directory: Path, body: str) -> click.testing.Result:
    """`understudy run --check` on broker.xml with this body and the stack beside it."""
    etc = directory / "etc"
    etc.mkdir()
    (etc / "stack.xml").write_text(STACK)
    document = f"""<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><name>one</name>
      <security-enabled>false</security-enabled>{body}</core></configuration>"""
    (etc / "broker.xml").write_text(document)
    arguments = ["--check", "--config", str(etc / "broker.xml"), "--property", "host.address=127.0.0.1"]
    return click.testing.CliRunner().invoke(run, arguments)


@pytest.mark.parametrize("name", USABLE)
def test_a_form_of_the_documents_is_usable(name: str, tmp_path: Path) -> None:
    done = check(tmp_path, USABLE[name])
    assert done.exit_code == 0, f"{done.output} {done.exception}"


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_is_refused_says_why(name: str, tmp_path: Path) -> None:
    body, reason = REFUSED[name]
    done = check(tmp_path, body)
    assert done.exit_code != 0
    assert reason in f"{done.output} {done.exception}"


@pytest.mark.parametrize("name", URLS)
def test_a_client_url_of_the_documents_is_read(name: str) -> None:
    text, connectors, attempts = URLS[name]
    url = parse_url(text)
    assert (len(url.connectors), url.options.reconnect_attempts) == (connectors, attempts)


DEFAULTS: Final = {
    "ha-policy/replication/primary/initial-replication-sync-timeout": "30000",
    "ha-policy/replication/primary/check-for-live-server": "false",
    "ha-policy/replication/backup/initial-replication-sync-timeout": "30000",
    "ha-policy/replication/backup/allow-failback": "true",
    "ha-policy/replication/backup/restart-backup": "true",
    "ha-policy/replication/backup/max-saved-replicated-journals-size": "2",
    "ha-policy/shared-store/primary/failover-on-shutdown": "false",
    "ha-policy/shared-store/primary/wait-for-activation": "true",
    "ha-policy/shared-store/backup/failover-on-shutdown": "false",
    "ha-policy/shared-store/backup/allow-failback": "true",
    "ha-policy/shared-store/backup/restart-backup": "true",
    "ha-policy/replication/colocated/request-backup": "false",
    "ha-policy/replication/colocated/max-backups": "1",
    "ha-policy/replication/colocated/backup-request-retries": "-1",
    "ha-policy/replication/colocated/backup-request-retry-interval": "5000",
    "ha-policy/replication/colocated/backup-port-offset": "100",
    "journal-min-files": "2",
    "connection-ttl-override": "-1",
    "bindings-directory": "data/bindings",
    "journal-directory": "data/journal",
    "large-messages-directory": "data/largemessages",
    "paging-directory": "data/paging",
    "broadcast-groups/broadcast-group/broadcast-period": "2000",
    "broadcast-groups/broadcast-group/local-bind-port": "-1",
    "discovery-groups/discovery-group/refresh-timeout": "10000",
    "cluster-connections/cluster-connection/check-period": "30000",
    "cluster-connections/cluster-connection/connection-ttl": "60000",
    "cluster-connections/cluster-connection/call-timeout": "30000",
    "cluster-connections/cluster-connection/call-failover-timeout": "-1",
    "cluster-connections/cluster-connection/retry-interval": "500",
    "cluster-connections/cluster-connection/retry-interval-multiplier": "1",
    "cluster-connections/cluster-connection/max-retry-interval": "2000",
    "cluster-connections/cluster-connection/initial-connect-attempts": "-1",
    "cluster-connections/cluster-connection/reconnect-attempts": "-1",
    "cluster-connections/cluster-connection/use-duplicate-detection": "true",
    "cluster-connections/cluster-connection/message-load-balancing": "ON_DEMAND",
    "cluster-connections/cluster-connection/max-hops": "1",
    "cluster-connections/cluster-connection/producer-window-size": "1M",
    "cluster-connections/cluster-connection/notification-interval": "1000",
    "cluster-connections/cluster-connection/notification-attempts": "2",
    "address-settings/address-setting/redistribution-delay": "-1",
}


@pytest.mark.parametrize("path", DEFAULTS)
def test_defaults_are_those_of_the_documents(path: str) -> None:
    assert element_at(f"core/{path}").default == DEFAULTS[path]


def test_a_default_that_differs_from_the_document() -> None:
    """The window of a cluster connection is that of the code of Artemis; its manual says 1M."""
    assert element_at("core/cluster-connections/cluster-connection/confirmation-window-size").default == "10M"


def test_an_element_without_effect_is_a_warning() -> None:
    (warning,) = read("<async-connection-execution-enabled>false</async-connection-execution-enabled>").warnings
    assert "async-connection-execution-enabled has no effect" in warning.message


def test_retries_of_a_vote_in_both_spellings() -> None:
    for name in ("vote-retry-wait", "vote-retries-wait"):
        role = f"<primary><{name}>77</{name}></primary>"
        assert read(policy(f"<replication>{role}</replication>")).configuration.ha_policy.is_pair
