"""Configurations of the simulated nodes: roles and options as a broker.xml, read by the shipped reader."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from understudy.config.model import Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.dataclass import dataclass

PORT: Final = 61616
STORE: Final = "/store"
QUEUE: Final = "orders"

_BROKER_XML: Final = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>{name}</name>
    <security-enabled>false</security-enabled>
    <bindings-directory>{store}/bindings</bindings-directory>
    <journal-directory>{store}/journal</journal-directory>
    <large-messages-directory>{store}/large-messages</large-messages-directory>
    <paging-directory>{store}/paging</paging-directory>
    <cluster-user>cluster</cluster-user>
    <cluster-password>only simulated</cluster-password>
    <connectors>
      <connector name="own">tcp://{name}:{port}</connector>
      {peer_connectors}
    </connectors>
    <acceptors>
      <acceptor name="core">tcp://0.0.0.0:{port}</acceptor>
    </acceptors>
    <cluster-connections>
      <cluster-connection name="pair">
        <connector-ref>own</connector-ref>
        <retry-interval>200</retry-interval>
        {cluster_times}
        <static-connectors>{peer_references}</static-connectors>
      </cluster-connection>
    </cluster-connections>
    {grouping}
    <ha-policy>{ha_policy}</ha-policy>
    <addresses>
      <address name="{queue}"><anycast><queue name="{queue}"/></anycast></address>
    </addresses>
    <address-settings>
      <address-setting match="#"><max-delivery-attempts>-1</max-delivery-attempts>{settings}</address-setting>
    </address-settings>
  </core>
</configuration>
"""

_SHARED_STORE: Final = """
      <shared-store>
        <{role}>
          <failover-on-shutdown>{failover_on_shutdown}</failover-on-shutdown>
          {role_options}
        </{role}>
      </shared-store>
"""

_REPLICATION: Final = """
      <replication>
        <{role}>
          {group_name}
          <manager>
            <class-name>witness</class-name>
            <properties>
              <property key="addresses" value="witness:61619"/>
              <property key="secret-file" value="/witness-secret"/>
            </properties>
          </manager>
          <retry-replication-wait>500</retry-replication-wait>
          {role_options}
        </{role}>
      </replication>
"""

_VOTES: Final = """
      <replication>
        <{role}>
          {group_name}
          <vote-retries>20</vote-retries>
          <vote-retry-wait>250</vote-retry-wait>
          <quorum-vote-wait>2</quorum-vote-wait>
          <vote-on-replication-failure>true</vote-on-replication-failure>
          <quorum-size>{size}</quorum-size>
          <retry-replication-wait>500</retry-replication-wait>
          {role_options}
        </{role}>
      </replication>
"""

#: Short times of the cluster connection of a replicated pair, so that a lost replica is noticed soon.
_CLUSTER_TIMES: Final = (
    "<check-period>1000</check-period><connection-ttl>3000</connection-ttl><call-timeout>3000</call-timeout>"
)


#: With a timeout longer than a run, so that no message is routed without its group.
_GROUPING: Final = '<grouping-handler name="groups"><type>{type}</type><timeout>120000</timeout></grouping-handler>'


@dataclass(frozen=True, slots=True)
class PairOptions:
    """How the nodes are configured."""

    failover_on_shutdown: bool = False
    allow_failback: bool = True
    segment_bytes: int = 64 * 1024
    compact_min_files: int = 10
    compact_percentage: int = 30
    max_size_bytes: int = -1
    """Bytes of messages of one address in memory; bodies of more are in the log only. -1 = any number."""
    quarantine: bool = False
    """A node that starts passes over damaged records of known extent (``quarantine-damaged-records``)."""
    replicated: bool = False
    """Each node has a store of its own, and a witness decides which one is active."""
    votes: bool = False
    """Whether the other nodes of the cluster of a replicated pair vote instead, also whether a node without its replica
    may go on (``vote-on-replication-failure``).
    """
    balancing: str = ""
    """``message-load-balancing`` of members of a cluster: each group of nodes is one. A member with a single node has
    no backup, the nodes of any other one have a shared store unless they are ``replicated``."""
    scale_down: bool = False
    """A member that is stopped cleanly moves its messages to another one; of replicated pairs, a backup that takes
    over does."""
    grouping: bool = False
    """The first member decides about message groups, and the others ask it."""
    group_names: bool = True
    """Group names of the replicated pairs, one for each; empty: pairs have none."""
    scrub_period_ms: int = 86_400_000
    """Milliseconds from one comparison of the files with their checksums to the next."""
    older: frozenset[str] = frozenset()
    """Nodes that are of the version before until their first restart, as in a rolling update: they speak the oldest
    replication protocol."""


@dataclass(frozen=True, slots=True)
class NodeRole:
    """One node of a topology with its role."""

    name: str
    """Name of the node, which is also the name of its host."""
    role: str
    """Role of the node, ``primary`` or ``backup``."""
    waits: bool = True
    """``wait-for-activation`` of a primary."""
    group: str = "pair"
    """The pair of the node; ``group-name`` of a replicated one in a cluster with other nodes."""


#: A primary and a backup.
PAIR: Final = (NodeRole("a", "primary"), NodeRole("b", "backup"))


def cluster_configurations(nodes: tuple[NodeRole, ...], options: PairOptions) -> list[Configuration]:
    """The configurations of all nodes of a topology, each read by the shipped reader from a broker.xml."""
    return [_configuration(node, nodes, options) for node in nodes]


def _policy(options: PairOptions, *, alone: bool) -> str:
    if options.balancing and alone:
        return "<primary-only><scale-down/></primary-only>" if options.scale_down else "<primary-only/>"
    if not options.replicated:
        return _SHARED_STORE
    return _VOTES if options.votes else _REPLICATION


@lru_cache(maxsize=64)
def _configuration(node: NodeRole, nodes: tuple[NodeRole, ...], options: PairOptions) -> Configuration:
    peers = [other.name for other in nodes if other is not node]
    if node.role == "backup":
        role_options = f"<allow-failback>{str(options.allow_failback).lower()}</allow-failback>"
        role_options += "<scale-down/>" * (options.scale_down and options.replicated)
    else:
        role_options = "" if node.waits else "<wait-for-activation>false</wait-for-activation>"
    groups = {other.group for other in nodes}
    settings = f"<max-size-bytes>{options.max_size_bytes}</max-size-bytes>" if options.max_size_bytes >= 0 else ""
    balancing = ""
    if options.balancing:
        balancing = f"<message-load-balancing>{options.balancing}</message-load-balancing>"
        settings += "<redistribution-delay>0</redistribution-delay>"
    text = _BROKER_XML.format(
        grouping=_GROUPING.format(type="LOCAL" if node.group == nodes[0].group else "REMOTE") * options.grouping,
        name=node.name,
        peer_connectors="".join(f'<connector name="{name}">tcp://{name}:{PORT}</connector>' for name in peers),
        peer_references="".join(f"<connector-ref>{name}</connector-ref>" for name in peers),
        port=PORT,
        store=STORE,
        queue=QUEUE,
        cluster_times=_CLUSTER_TIMES * (options.replicated or bool(options.balancing)) + balancing,
        ha_policy=_policy(options, alone=[other.group for other in nodes].count(node.group) == 1).format(
            role=node.role,
            group_name=f"<group-name>{node.group}</group-name>" * (len(groups) > 1 and options.group_names),
            size=len(groups),
            failover_on_shutdown=str(options.failover_on_shutdown).lower(),
            role_options=role_options,
        ),
        settings=settings,
    )
    loaded = read_broker_xml(text.encode(), file=f"{node.name}/broker.xml")
    # smaller than the file may ask for, so that short runs change segments often
    return replace(
        loaded.configuration,
        journal_file_size_bytes=options.segment_bytes,
        journal_compact_min_files=options.compact_min_files,
        journal_compact_percentage_percent=options.compact_percentage,
        quarantine_damaged_records=options.quarantine,
        scrub_period_ms=options.scrub_period_ms,
    )
