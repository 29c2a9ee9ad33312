"""``bridges`` of broker.xml."""

from __future__ import annotations

import pytest

from support.config import fails, read
from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget
from understudy.terms import ADD_HEADERS_TRANSFORMER

BEFORE = """<cluster-password>a password of our own</cluster-password>
<connectors><connector name="c">tcp://there:61616</connector><connector name="self">tcp://127.0.0.1:1</connector>
</connectors><acceptors><acceptor name="a">tcp://127.0.0.1:1</acceptor></acceptors>"""
QUEUE = "<queue-name>q</queue-name>"
STATIC = "<static-connectors><connector-ref>c</connector-ref></static-connectors>"


def bridge(inside: str) -> str:
    return f'{BEFORE}<bridges><bridge name="b">{inside}</bridge></bridges>'


def test_defaults_are_those_of_artemis() -> None:
    loaded = read(bridge(QUEUE + STATIC))
    assert not loaded.warnings
    (found,) = loaded.configuration.bridges
    assert found == BridgeConfiguration("b", "q", BridgeTarget(("c",)))
    assert found.connection == BridgeConnection(
        check_period_ms=30_000,
        connection_ttl_ms=60_000,
        retry_interval_ms=2_000,
        retry_interval_multiplier=1.0,
        max_retry_interval_ms=2_000,
        initial_connect_attempts=-1,
        reconnect_attempts=-1,
        reconnect_attempts_same_node=10,
        pending_ack_timeout_ms=60_000,
    )
    assert (found.min_large_message_size_bytes, found.use_duplicate_detection) == (102_400, True)
    assert (found.confirmation_window_size_bytes, found.producer_window_size_bytes) == (1 << 20, 1 << 20)
    assert (found.routing_type, found.concurrency, found.forwarding_address, found.target.ha) == (
        "PASS",
        1,
        None,
        False,
    )


def test_every_element_is_read() -> None:
    loaded = read(
        bridge(f"""{QUEUE}<forwarding-address>t</forwarding-address><ha>true</ha><filter string="n = 1"/>
        <transformer><class-name>{ADD_HEADERS_TRANSFORMER}</class-name><property key="k" value="v"/></transformer>
        <min-large-message-size>1K</min-large-message-size><check-period>1</check-period>
        <connection-ttl>2</connection-ttl><retry-interval>3</retry-interval>
        <retry-interval-multiplier>1.5</retry-interval-multiplier><max-retry-interval>4</max-retry-interval>
        <initial-connect-attempts>5</initial-connect-attempts><reconnect-attempts>6</reconnect-attempts>
        <use-duplicate-detection>false</use-duplicate-detection>
        <confirmation-window-size>2K</confirmation-window-size><producer-window-size>-1</producer-window-size>
        <user>u</user><password>p</password><reconnect-attempts-same-node>7</reconnect-attempts-same-node>
        <routing-type>STRIP</routing-type><concurrency>2</concurrency><pending-ack-timeout>8</pending-ack-timeout>
        <client-id>id</client-id>{STATIC}""")
    )
    assert not loaded.warnings
    (found,) = loaded.configuration.bridges
    assert found.target == BridgeTarget(("c",), None, True, "u", "p", "id")
    assert found.connection == BridgeConnection(1, 2, 3, 1.5, 4, 5, 6, 7, 8)
    assert found == BridgeConfiguration(
        "b", "q", found.target, found.connection, "t", "n = 1", ADD_HEADERS_TRANSFORMER, {"k": "v"}, 1_024, False,
        2_048, -1, "STRIP", 2,
    )  # fmt: skip
    assert "'p'" not in repr(found)


@pytest.mark.parametrize(
    ("inside", "text"),
    [
        (STATIC, "queue-name"),
        (QUEUE, "static-connectors or discovery-group-ref is required"),
        (QUEUE + STATIC.replace(">c<", ">missing<"), "there is no connector 'missing'"),
        (QUEUE + STATIC + '<discovery-group-ref discovery-group-name="g"/>', "there is no discovery-group 'g'"),
        (QUEUE + STATIC + "<user>u</user>", "user and password are given together"),
        (QUEUE + STATIC + "<filter string='n ='/>", "unexpected"),
        (QUEUE + STATIC + "<transformer-class-name>x.Y</transformer-class-name>", "cannot be loaded here"),
        (QUEUE + STATIC + "<concurrency>0</concurrency>", "1 to 64"),
        (QUEUE + STATIC + "<retry-interval>0</retry-interval>", "1 to 2147483647"),
        (QUEUE + STATIC + "<producer-window-size>0</producer-window-size>", "1 to 2147483647 or -1"),
        (QUEUE + STATIC + "<confirmation-window-size>3G</confirmation-window-size>", "1 to 2147483647 or -1"),
        (QUEUE + STATIC + "<reconnect-attempts>-2</reconnect-attempts>", "outside -1"),
        (QUEUE + STATIC + "<retry-interval-multiplier>0</retry-interval-multiplier>", "is not above 0"),
        (QUEUE + STATIC.replace(">c<", ">self<"), "to which each message would come back"),
    ],
)
def test_wrong_bridges(inside: str, text: str) -> None:
    assert text in str(fails(bridge(inside)))


def test_a_bridge_needs_no_user_where_its_target_is_named() -> None:
    text = bridge(QUEUE + STATIC).replace("<cluster-password>a password of our own</cluster-password>", "")
    assert read(text).configuration.bridges[0].target.user is None
    login = text.replace(QUEUE, QUEUE + "<user>u</user><password>p</password>")
    assert read(login).configuration.bridges[0].target.user == "u"


def test_a_password_is_not_sent_to_discovered_brokers() -> None:
    group = """<discovery-groups><discovery-group name="g"><group-address>231.7.7.7</group-address>
    <group-port>9876</group-port></discovery-group></discovery-groups>"""
    text = group + bridge(QUEUE + '<discovery-group-ref discovery-group-name="g"/>')
    assert read(text).configuration.bridges[0].target == BridgeTarget(discovery_group="g")
    public = text.replace("<cluster-password>a password of our own</cluster-password>", "")
    assert "needs a cluster-password of this broker" in str(fails(public))
    wrong = text.replace(QUEUE, QUEUE + "<user>u</user><password>p</password>")
    assert "are not sent to discovered brokers" in str(fails(wrong))
