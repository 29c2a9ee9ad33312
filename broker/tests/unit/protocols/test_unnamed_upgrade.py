"""The connector of a node as clients get it that asked for an HTTP upgrade, with and without the name of the server."""

from __future__ import annotations

import pytest

from support.core import Client, CoreNode
from understudy.cluster.membership.topology import Member
from understudy.protocols.core.control_channel import ControlChannel
from understudy.wire.core.transport import TransportConfiguration

UPGRADE = TransportConfiguration.from_url(
    "tcp://10.0.0.1:8080?httpUpgradeEnabled=true&httpUpgradeEndpoint=web&activemqServerName=n0&sslEnabled=true", "web"
)


@pytest.mark.parametrize("named", [False, True])
def test_a_client_whose_request_named_no_server_finds_itself_in_the_topology(named: bool) -> None:
    client = Client(CoreNode(), "192.0.2.1:5000")
    client.connection.upgrade_without_name = not named
    own = Member(client.handler.services.shared.node_id, 1, UPGRADE)
    told = ControlChannel(client.handler)._told(own)
    assert told is not None
    if named:
        assert told == UPGRADE
        return
    assert (told.host, told.port) == ("10.0.0.1", 8080)
    assert set(told.parameters) == {"host", "port", "sslEnabled"}


def test_other_nodes_and_other_members_are_as_they_are() -> None:
    client = Client(CoreNode(), "192.0.2.1:5000")
    client.connection.upgrade_without_name = True
    channel = ControlChannel(client.handler)
    assert channel._told(Member("another-node", 1, UPGRADE)) == UPGRADE
    client.handler.is_node = True
    assert channel._told(Member(client.handler.services.shared.node_id, 1, UPGRADE)) == UPGRADE
