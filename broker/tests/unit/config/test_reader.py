"""Parts of a configuration that the reader reads: clusters, high availability, addresses, queues and diverts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.config import CONNECTORS, PASSWORD, cluster, fails, read
from understudy.config.high_availability import (
    HighAvailabilityPolicy,
    ReplicationConfiguration,
    Role,
    ScaleDownConfiguration,
)
from understudy.config.lock_options import FileLockOptions
from understudy.config.model import (
    DEFAULT_CLUSTER_PASSWORD,
    AddressConfiguration,
    ClusterConnectionConfiguration,
    Configuration,
    CriticalAnalyzerPolicy,
    QueueConfiguration,
)
from understudy.config.password_codec import PasswordCodec
from understudy.config.reading.reader import read_broker_xml
from understudy.terms import (
    ADD_HEADERS_TRANSFORMER,
    AddressFullPolicy,
    DivertDefinition,
    DivertRouting,
    MessageLoadBalancing,
    Permission,
    ResourceLimits,
    RoutingType,
)
from understudy.tls.settings import TlsSettings


def test_an_empty_file_is_the_defaults() -> None:
    assert read("", base_directory="").configuration == Configuration()


def test_the_file_artemis_creates_loads_with_warnings_only() -> None:
    data = (Path(__file__).parent / "stock_broker.xml").read_bytes()
    loaded = read_broker_xml(data, file="etc/broker.xml", base_directory="/srv/node")
    found = loaded.configuration
    assert found.name == "stock"
    assert [acceptor.name for acceptor in found.acceptors] == ["artemis"]
    assert [address.name for address in found.addresses] == ["DLQ", "ExpiryQueue"]
    assert found.ha_policy == HighAvailabilityPolicy(Role.PRIMARY, failover_on_shutdown=True)
    assert found.address_settings[1].address_full_policy is AddressFullPolicy.PAGE
    assert set(found.security_settings[0].permissions) == set(Permission) - {Permission.VIEW, Permission.EDIT}
    assert found.cluster_connections[0].discovery_group == "dg-group1"
    named = {warning.message.split()[0] for warning in loaded.warnings}
    assert {"journal-type", "acceptor"} <= named
    (broadcast,), (discovery,) = found.broadcast_groups, found.discovery_groups
    assert (broadcast.name, broadcast.connectors, broadcast.broadcast_period_ms) == (
        "bg-group1",
        ("artemis",),
        5_000,
    )
    assert (discovery.name, discovery.refresh_timeout_ms) == ("dg-group1", 10_000)
    assert (discovery.carrier.group_address, discovery.carrier.group_port) == ("231.7.7.7", 9876)
    assert found.critical_analyzer_policy is CriticalAnalyzerPolicy.HALT
    assert len({str(warning) for warning in loaded.warnings}) == len(loaded.warnings)


def test_directories_start_at_the_base() -> None:
    body = "<journal-directory>../shared/./journal</journal-directory><paging-directory>/abs</paging-directory>"
    found = read(body).configuration
    assert found.journal_directory == "/srv/shared/journal"
    assert found.paging_directory == "/abs"
    assert found.bindings_directory == "/srv/node/data/bindings"
    assert found.large_messages_directory == "/srv/node/data/largemessages"
    assert found.node_manager_lock_directory == found.lock_directory == "/srv/shared/journal"
    assert (
        read("<node-manager-lock-directory>locks</node-manager-lock-directory>").configuration.lock_directory
        == "/srv/node/locks"
    )


def test_store_directories_are_named_once() -> None:
    found = read("<paging-directory>data/journal</paging-directory>").configuration
    assert found.store_directories() == (
        "/srv/node/data/bindings",
        "/srv/node/data/journal",
        "/srv/node/data/largemessages",
    )
    found = read("<journal-retention-directory>/archive/kept</journal-retention-directory>").configuration
    assert found.store_directories()[-1] == "/archive/kept", "messages are kept there too"


@pytest.mark.parametrize("element", ["name", "journal-directory"])
def test_an_empty_value_is_refused(element: str) -> None:
    fails(f"<{element}> </{element}>")


# --- cluster ---------------------------------------------------------------------------------


@pytest.mark.parameter(
    "cluster-connection/name",
    "cluster-connection/connector-ref",
    "cluster-connection/static-connectors/connector-ref",
    "cluster-user",
    "cluster-password",
)
def test_a_cluster_connection() -> None:
    found = read(
        cluster(
            "<retry-interval>1s</retry-interval><static-connectors><connector-ref>peer</connector-ref></static-connectors>"
        )
    )
    (connection,) = found.configuration.cluster_connections
    assert connection == ClusterConnectionConfiguration(
        name="c", connector_ref="own", static_connectors=("peer",), retry_interval_ms=1000
    )
    assert found.configuration.connector("peer").port == 1
    with pytest.raises(KeyError):
        found.configuration.connector("missing")


@pytest.mark.parametrize("head", ["", "<cluster-password>CHANGE ME!!</cluster-password>"])
@pytest.mark.parameter("cluster-password")
def test_the_default_cluster_password_is_warned_of_in_a_cluster(head: str) -> None:
    found = read(cluster("", head=head + CONNECTORS))
    assert not found.configuration.has_cluster_password
    (warning,) = [each for each in found.warnings if "the default cluster-password is public" in each.message]
    assert warning.path == ("core/cluster-password" if head else "core/cluster-connections")
    assert warning.line > 0


def test_the_masked_default_is_the_default() -> None:
    masked = PasswordCodec().mask(DEFAULT_CLUSTER_PASSWORD)
    found = read(cluster("", head=f"<cluster-password>{masked}</cluster-password>{CONNECTORS}"))
    assert any("the default cluster-password is public" in each.message for each in found.warnings)


def test_an_empty_cluster_password_is_refused_in_a_cluster() -> None:
    assert "core/cluster-password: the value is empty" in str(
        fails(cluster("", head="<cluster-password/>" + CONNECTORS))
    )


def test_the_default_cluster_password_is_fine_without_a_cluster() -> None:
    assert read(CONNECTORS).configuration.cluster_connections == ()


def test_the_cluster_password_is_not_shown() -> None:
    assert "of our own" not in repr(read(cluster("")).configuration)


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("<static-connectors><connector-ref>peeer</connector-ref></static-connectors>", "did you mean 'peer'?"),
        ('<discovery-group-ref discovery-group-name="x"/>', "no discovery-group 'x'"),
        (
            "<message-load-balancing>OFF</message-load-balancing><forward-when-no-consumers>true</forward-when-no-consumers>",
            "says it already",
        ),
    ],
)
def test_a_wrong_cluster_connection(inside: str, text: str) -> None:
    assert text in str(fails(cluster(inside)))


@pytest.mark.parameter("cluster-connection/uri")
def test_a_cluster_connection_by_uri_is_refused() -> None:
    body = '<cluster-connections><cluster-connection name="c" uri="static://(tcp://a:1)"><connector-ref>own</connector-ref></cluster-connection></cluster-connections>'
    assert "uri attribute" in str(fails(PASSWORD + CONNECTORS + body))


def test_an_unknown_own_connector_is_refused() -> None:
    assert "there is no connector 'own'" in str(fails(cluster("", head=PASSWORD)))


def pair_member(role: str, own: str, static: str) -> str:
    """A member of a pair; ``own`` and ``static`` are the addresses of its connectors."""
    return (
        f'{PASSWORD}<connectors><connector name="own">{own}</connector><connector name="other">{static}</connector>'
        '</connectors><cluster-connections><cluster-connection name="c">\n<connector-ref>own</connector-ref>'
        "<static-connectors><connector-ref>other</connector-ref></static-connectors></cluster-connection>"
        f"</cluster-connections><ha-policy><shared-store><{role}/></shared-store></ha-policy>"
    )


def test_a_replica_whose_static_connectors_are_itself_is_refused() -> None:
    """A broker.xml that was copied from the primary."""
    text = pair_member("backup", "tcp://one:61616", "tcp://ONE:61616?x=1").replace("shared-store", "replication")
    error = fails(text)
    assert "connector-ref 'own' and every static connector of 'c' are tcp://one:61616" in str(error)
    assert "static-connectors name the other node" in str(error)
    assert error.line == 2


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_node_with_a_shared_store_that_would_announce_itself_to_itself_is_warned_of(role: str) -> None:
    loaded = read(pair_member(role, "tcp://one:61616", "tcp://ONE:61616?x=1"))
    assert any("never announce itself" in warning.message for warning in loaded.warnings)


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_pair_with_two_addresses_is_fine(role: str) -> None:
    loaded = read(pair_member(role, "tcp://one:61616", "tcp://one:61617"))
    assert not any("announce" in warning.message for warning in loaded.warnings)


def test_a_connector_with_tls_is_announced_and_dialled() -> None:
    tls = '<connectors><connector name="own">tcp://a:1?sslEnabled=true</connector></connectors>'
    assert read(cluster("", head=PASSWORD + tls)).configuration.connectors[0].parameters["sslEnabled"] is True
    static = "<static-connectors><connector-ref>own</connector-ref></static-connectors>"
    (own,) = read(cluster(static, head=PASSWORD + tls)).configuration.connectors
    assert own.tls == TlsSettings()


@pytest.mark.parametrize(
    ("old", "new"), [("true", MessageLoadBalancing.STRICT), ("false", MessageLoadBalancing.ON_DEMAND)]
)
@pytest.mark.parameter("cluster-connection/forward-when-no-consumers")
def test_the_old_form_of_load_balancing(old: str, new: MessageLoadBalancing) -> None:
    found = read(cluster(f"<forward-when-no-consumers>{old}</forward-when-no-consumers>")).configuration
    assert found.cluster_connections[0].message_load_balancing is new


def test_load_balancing_is_read() -> None:
    found = read(cluster("<message-load-balancing>STRICT</message-load-balancing>")).configuration
    assert found.cluster_connections[0].message_load_balancing is MessageLoadBalancing.STRICT


def test_a_discovery_group_and_static_connectors_exclude_each_other() -> None:
    place = "<group-address>231.7.7.7</group-address><group-port>9876</group-port>"
    group = f'<discovery-groups><discovery-group name="g">{place}</discovery-group></discovery-groups>'
    static = "<static-connectors><connector-ref>peer</connector-ref></static-connectors>"
    discovery = '<discovery-group-ref discovery-group-name="g"/>'
    assert "says it already" in str(fails(group + cluster(static + discovery)))


def test_two_acceptors_at_one_place_are_refused() -> None:
    fails('<acceptors><acceptor name="a">tcp://h:1</acceptor><acceptor name="b">tcp://h:1</acceptor></acceptors>')


@pytest.mark.parameter(
    "scale-down/enabled",
    "scale-down/group-name",
    "scale-down/discovery-group-ref",
    "scale-down/discovery-group-ref/discovery-group-name",
    "scale-down/connectors/connector-ref",
    "scale-down/commit-interval",
)
@pytest.mark.parametrize(
    ("inside", "found"),
    [
        (
            (
                "<enabled>false</enabled><group-name>g</group-name><commit-interval>7</commit-interval>"
                "<connectors><connector-ref>peer</connector-ref></connectors>"
            ),
            ScaleDownConfiguration(False, "g", ("peer",), None, 7),
        ),
        ('<discovery-group-ref discovery-group-name="d"/>', ScaleDownConfiguration(discovery_group="d")),
    ],
)
def test_every_element_of_scale_down_is_read(inside: str, found: ScaleDownConfiguration) -> None:
    group = "<group-address>231.7.7.7</group-address><group-port>9876</group-port>"
    groups = f'<discovery-groups><discovery-group name="d">{group}</discovery-group></discovery-groups>'
    policy = f"<ha-policy><primary-only><scale-down>{inside}</scale-down></primary-only></ha-policy>"
    assert read(cluster("") + groups + policy).configuration.ha_policy.scale_down == found


def test_two_acceptors_may_let_the_system_choose() -> None:
    body = '<acceptors><acceptor name="a">tcp://h:0</acceptor><acceptor name="b">tcp://h:0</acceptor></acceptors>'
    assert len(read(body).configuration.acceptors) == 2


# --- high availability -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "policy"),
    [
        ("", HighAvailabilityPolicy()),
        ("<ha-policy><primary-only/></ha-policy>", HighAvailabilityPolicy()),
        ("<ha-policy><live-only/></ha-policy>", HighAvailabilityPolicy()),
        (
            "<ha-policy><live-only><scale-down><enabled>false</enabled></scale-down></live-only></ha-policy>",
            HighAvailabilityPolicy(scale_down=ScaleDownConfiguration(enabled=False)),
        ),
        ("<ha-policy><shared-store><primary/></shared-store></ha-policy>", HighAvailabilityPolicy(Role.PRIMARY)),
        ("<ha-policy><shared-store><slave/></shared-store></ha-policy>", HighAvailabilityPolicy(Role.BACKUP)),
        (
            """<ha-policy><shared-store><master><failover-on-server-shutdown>true</failover-on-server-shutdown>
            <wait-for-activation>false</wait-for-activation></master></shared-store></ha-policy>""",
            HighAvailabilityPolicy(Role.PRIMARY, failover_on_shutdown=True, wait_for_activation=False),
        ),
        (
            """<ha-policy><shared-store><backup><allow-fail-back>false</allow-fail-back>
            <restart-backup>false</restart-backup><failover-on-shutdown>true</failover-on-shutdown>
            </backup></shared-store></ha-policy>""",
            HighAvailabilityPolicy(Role.BACKUP, failover_on_shutdown=True, allow_failback=False, restart_backup=False),
        ),
    ],
)
def test_policies(body: str, policy: HighAvailabilityPolicy) -> None:
    assert read(body).configuration.ha_policy == policy


@pytest.mark.parametrize(
    "inside",
    [
        "<replication><primary/></replication>",
        "<replication><slave><check-for-live-server>true</check-for-live-server></slave></replication>",
        "<replication/>",
        "<shared-store><colocated><primary/><backup/></colocated></shared-store>",
        "<shared-store><backup><scale-down/></backup></shared-store>",
        "<replication><backup><scale-down/></backup></replication>",
        "<primary-only><scale-down><enabled>true</enabled></scale-down></primary-only>",
        "<shared-store/>",
        "<shared-store><primary/><backup/></shared-store>",
        "<shared-store><primary/><master/></shared-store>",
        "<primary-only/><shared-store><primary/></shared-store>",
    ],
)
def test_a_policy_that_cannot_be_carried_out_is_refused(inside: str) -> None:
    assert "ha-policy" in fails(f"<ha-policy>{inside}</ha-policy>").path


def test_a_colocated_policy_without_a_cluster_is_refused() -> None:
    error = fails("<ha-policy><shared-store><colocated><primary/><backup/></colocated></shared-store></ha-policy>")
    assert "colocated needs a cluster-connection" in str(error)


REPLICATION = """
<connectors><connector name="own">tcp://a:1</connector></connectors>
<cluster-user>c</cluster-user><cluster-password>a password of this test</cluster-password>
<cluster-connections><cluster-connection name="pair"><connector-ref>own</connector-ref></cluster-connection>
</cluster-connections>
<ha-policy><replication>{}</replication></ha-policy>"""
MANAGER = """<manager><class-name>file</class-name>
<properties><property key="locks-folder" value="/mnt/locks"/></properties></manager>"""


def test_a_replicated_backup() -> None:
    body = f"""<slave>{MANAGER}<group-name>fish</group-name><cluster-name>pair</cluster-name>
    <max-saved-replicated-journal-size>0</max-saved-replicated-journal-size>
    <durability-contract>replica-memory</durability-contract><allow-fail-back>false</allow-fail-back></slave>"""
    policy = read(REPLICATION.format(body)).configuration.ha_policy
    assert policy == HighAvailabilityPolicy(
        Role.BACKUP,
        allow_failback=False,
        replication=ReplicationConfiguration(
            group_name="fish",
            cluster_name="pair",
            max_saved_replicated_journals_size=0,
            durability_contract="replica-memory",
            lock_manager=FileLockOptions("/mnt/locks"),
        ),
    )


def test_a_replicated_primary_has_the_documented_defaults() -> None:
    replication = read(REPLICATION.format(f"<primary>{MANAGER}</primary>")).configuration.ha_policy.replication
    assert replication is not None
    assert replication.initial_replication_sync_timeout_ms == 30_000
    assert replication.retry_replication_wait_ms == 2_000
    assert replication.max_saved_replicated_journals_size == 2
    assert replication.durability_contract == "replica-disk"
    assert replication.replica_silence_ms == 4_000


@pytest.mark.parametrize(
    ("properties", "silence", "warned"),
    [
        ("", "4000", False),
        ("", "6001", True),
        ("", "-1", True),
        ('<property key="lease-ms" value="2000"/>', "4000", True),
        ('<property key="lease-ms" value="2000"/>', "2000", False),
    ],
)
def test_a_silence_that_outlasts_the_lease_is_warned_of(properties: str, silence: str, warned: bool) -> None:
    manager = f"""<manager><class-name>witness</class-name><properties>{properties}
    <property key="addresses" value="10.0.0.3:61619"/><property key="secret-file" value="/s"/></properties></manager>"""
    element = f"<replica-silence>{silence}</replica-silence>"
    found = read(REPLICATION.format(f"<primary>{manager}{element}</primary>")).warnings
    assert [each.path.rpartition("/")[2] for each in found] == ["replica-silence"] * warned


VOTES = """
<vote-on-replication-failure>true</vote-on-replication-failure><quorum-size>3</quorum-size>
<vote-retries>4</vote-retries><vote-retry-wait>500</vote-retry-wait><quorum-vote-wait>7</quorum-vote-wait>"""


@pytest.mark.parametrize(
    ("primary", "check"),
    [("primary", "check-for-active-server"), ("master", "check-for-live-server")],
)
def test_replication_without_a_manager_votes(primary: str, check: str) -> None:
    read_now = read(REPLICATION.format(f"<{primary}>{VOTES}<{check}>true</{check}></{primary}>"))
    assert read_now.configuration.ha_policy.replication == ReplicationConfiguration(
        vote_on_replication_failure=True,
        quorum_size=3,
        vote_retries=4,
        vote_retry_wait_ms=500,
        quorum_vote_wait_seconds=7,
        check_for_active_server=True,
    )
    assert not read_now.warnings
    assert read(REPLICATION.format("<slave/>")).configuration.ha_policy.replication == ReplicationConfiguration()


def test_elements_that_do_nothing_with_or_without_a_manager_are_warned_of() -> None:
    body = f"<primary>{MANAGER}{VOTES}<check-for-active-server>true</check-for-active-server></primary>"
    warned = read(REPLICATION.format(body)).warnings
    assert len(warned) == 6
    assert all("with a manager" in each.message for each in warned)
    (warning,) = read(REPLICATION.format("<primary><coordination-id>x</coordination-id></primary>")).warnings
    assert "without a manager" in warning.message


def test_replication_needs_a_cluster_connection() -> None:
    assert "needs a cluster-connection" in str(
        fails(f"<ha-policy><replication><primary>{MANAGER}</primary></replication></ha-policy>")
    )
    wrong = f"<backup>{MANAGER}<cluster-name>pear</cluster-name></backup>"
    error = fails(REPLICATION.format(wrong))
    assert "no cluster-connection 'pear'" in str(error)
    assert "pair" in str(error.hint)


def test_a_role_is_its_text() -> None:
    assert Role.BACKUP == "backup"


# --- addresses -------------------------------------------------------------------------------


def test_addresses_and_queues() -> None:
    body = """<addresses>
      <address name="orders">
        <anycast>
          <queue name="orders" max-consumers="3" exclusive="true" purge-on-no-consumers="false">
            <filter string="colour = 'red'"/><durable>false</durable>
          </queue>
        </anycast>
        <multicast><queue name="audit" group-rebalance="true" group-buckets="-1" enabled="true"/></multicast>
      </address>
      <address name="events"><multicast/></address>
      <address name="later"/>
    </addresses>"""
    assert read(body).configuration.addresses == (
        AddressConfiguration(
            "orders",
            frozenset(RoutingType),
            (
                QueueConfiguration(
                    "orders",
                    "orders",
                    RoutingType.ANYCAST,
                    filter="colour = 'red'",
                    durable=False,
                    max_consumers=3,
                    exclusive=True,
                    purge_on_no_consumers=False,
                ),
                QueueConfiguration(
                    "audit", "orders", RoutingType.MULTICAST, group_rebalance=True, group_buckets=-1, enabled=True
                ),
            ),
        ),
        AddressConfiguration("events", frozenset({RoutingType.MULTICAST})),
        AddressConfiguration("later", frozenset()),
    )


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ('<address name="a::b"/>', "separates address and queue"),
        (
            '<address name="a"><anycast><queue name="q"><filter string="x ="/></queue></anycast></address>',
            "at position 4",
        ),
        ('<address name="a"><anycast><queue name="q"><filter/></queue></anycast></address>', "'string' is missing"),
        ('<address name="a"><anycast><queue name="q" ring-size="five"/></anycast></address>', "five"),
        (f'<address name="{"a" * 4097}"/>', "4097 characters"),
        ("<address/>", "'name' is missing"),
    ],
)
def test_wrong_addresses(inside: str, text: str) -> None:
    assert text in str(fails(f"<addresses>{inside}</addresses>"))


def test_queue_kinds() -> None:
    body = """<addresses><address name="a"><multicast>
      <queue name="q" last-value-key="code" non-destructive="true" ring-size="5" enabled="false"
        consumers-before-dispatch="2" delay-before-dispatch="500" group-first-key="first"/>
    </multicast></address></addresses>"""
    (address,) = read(body).configuration.addresses
    assert address.queues == (
        QueueConfiguration(
            "q", "a", RoutingType.MULTICAST, last_value_key="code", non_destructive=True, ring_size=5, enabled=False,
            consumers_before_dispatch=2, delay_before_dispatch=500, group_first_key="first",
        ),
    )  # fmt: skip


def test_diverts() -> None:
    body = """<diverts>
      <divert name="copy"><address>orders.#</address><forwarding-address>audit, archive</forwarding-address></divert>
      <divert name="move">
        <address>orders</address><forwarding-address>new</forwarding-address><routing-name>n</routing-name>
        <filter string="region = 'EU'"/><exclusive>true</exclusive><routing-type>PASS</routing-type>
      </divert>
    </diverts>"""
    loaded = read(body)
    assert not loaded.warnings
    assert loaded.configuration.diverts == (
        DivertDefinition("copy", "orders.#", "audit, archive"),
        DivertDefinition("move", "orders", "new", "n", "region = 'EU'", True, DivertRouting.PASS),
    )


def test_a_divert_adds_headers() -> None:
    body = f"""<diverts><divert name="d"><address>a</address><forwarding-address>b</forwarding-address>
      <transformer><class-name>{ADD_HEADERS_TRANSFORMER}</class-name>
        <property key="colour" value="red"/><property key="size" value="7"/></transformer></divert>
      <divert name="e"><address>a</address><forwarding-address>b</forwarding-address>
        <transformer-class-name>{ADD_HEADERS_TRANSFORMER}</transformer-class-name></divert></diverts>"""
    loaded = read(body)
    assert not loaded.warnings
    first, second = loaded.configuration.diverts
    assert first.transformer_properties == {"colour": "red", "size": "7"}
    assert (second.transformer_class_name, second.transformer_properties) == (ADD_HEADERS_TRANSFORMER, {})


def test_queues_in_the_old_form() -> None:
    loaded = read("""<addresses><address name="a"><multicast><queue name="x"><user>bob</user></queue></multicast>
      </address></addresses><queues><queue name="q" max-consumers="2"><address>a</address><user>amy</user>
      <filter string="n = 1"/><durable>false</durable></queue><queue name="alone"/></queues>""")
    assert not loaded.warnings
    multicast = frozenset({RoutingType.MULTICAST})
    queue = QueueConfiguration("q", "a", RoutingType.MULTICAST, "n = 1", False, "amy", max_consumers=2)
    assert loaded.configuration.addresses == (
        AddressConfiguration("a", multicast, (QueueConfiguration("x", "a", RoutingType.MULTICAST, user="bob"), queue)),
        AddressConfiguration("alone", multicast, (QueueConfiguration("alone", "alone", RoutingType.MULTICAST),)),
    )


def test_how_matches_are_written() -> None:
    loaded = read("""<uuid-namespace>temp</uuid-namespace><literal-match-markers>()</literal-match-markers>
      <address-settings><address-setting match="(a.#.b)"/></address-settings>""")
    assert not loaded.warnings
    wildcards = loaded.configuration.wildcards
    assert (wildcards.uuid_namespace, wildcards.literal_markers) == ("temp", "()")
    assert "two characters" in str(fails("<literal-match-markers>(</literal-match-markers>"))
    assert "only possible at the end" in str(
        fails('<address-settings><address-setting match="a.#.b"/></address-settings>')
    )


def test_resource_limits() -> None:
    loaded = read("""<resource-limit-settings>
      <resource-limit-setting match="amy"><max-connections>3</max-connections><max-queues>4</max-queues>
      </resource-limit-setting><resource-limit-setting match="bob"/></resource-limit-settings>""")
    assert not loaded.warnings
    assert loaded.configuration.resource_limits == {"amy": ResourceLimits(3, 4), "bob": ResourceLimits()}


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        ("<address>a</address>", "forwarding-address"),
        ("<address>a</address><forwarding-address>b,,c</forwarding-address>", "empty"),
        ("<address>a</address><forwarding-address>b::c</forwarding-address>", "separates address and queue"),
        ("<address/><forwarding-address>b</forwarding-address>", "empty"),
        ('<address>a</address><forwarding-address>b</forwarding-address><filter string="x ="/>', "at position 4"),
        ("<address>a</address><forwarding-address>b</forwarding-address><routing-type>BOTH</routing-type>", "BOTH"),
        (
            """<address>a</address><forwarding-address>b</forwarding-address>
            <transformer-class-name>org.example.T</transformer-class-name>""",
            "transformer-class-name: class 'org.example.T' cannot be loaded here",
        ),
        (
            """<address>a</address><forwarding-address>b</forwarding-address>
            <transformer><class-name>org.example.T</class-name></transformer>""",
            "transformer/class-name: class 'org.example.T' cannot be loaded here",
        ),
    ],
)
def test_wrong_diverts(inside: str, text: str) -> None:
    assert text in str(fails(f'<diverts><divert name="d">{inside}</divert></diverts>'))
