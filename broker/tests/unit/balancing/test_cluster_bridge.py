"""The bridges of a cluster connection have its settings."""

from __future__ import annotations

import pytest

from support.config import cluster, read
from understudy.cluster.balancing.cluster_bridge import bridge_configuration
from understudy.config.bridge import BridgeConfiguration, BridgeConnection, BridgeTarget


@pytest.mark.parameter(
    "cluster-connection/check-period",
    "cluster-connection/connection-ttl",
    "cluster-connection/retry-interval",
    "cluster-connection/retry-interval-multiplier",
    "cluster-connection/max-retry-interval",
    "cluster-connection/initial-connect-attempts",
    "cluster-connection/reconnect-attempts",
    "cluster-connection/min-large-message-size",
    "cluster-connection/use-duplicate-detection",
    "cluster-connection/confirmation-window-size",
    "cluster-connection/producer-window-size",
    "cluster-connection/client-id",
)
def test_every_setting_is_that_of_the_bridges() -> None:
    body = cluster(
        "<check-period>1</check-period><connection-ttl>2</connection-ttl><retry-interval>3</retry-interval>"
        "<retry-interval-multiplier>1.5</retry-interval-multiplier><max-retry-interval>4</max-retry-interval>"
        "<initial-connect-attempts>5</initial-connect-attempts><reconnect-attempts>6</reconnect-attempts>"
        "<min-large-message-size>7</min-large-message-size><use-duplicate-detection>false</use-duplicate-detection>"
        "<confirmation-window-size>8</confirmation-window-size><producer-window-size>9</producer-window-size>"
        "<client-id>us</client-id>"
    )
    (found,) = read(body).configuration.cluster_connections
    assert bridge_configuration("sf", found) == BridgeConfiguration(
        "sf",
        "sf",
        BridgeTarget(client_id="us"),
        BridgeConnection(1, 2, 3, 1.5, 4, 5, 6),
        min_large_message_size_bytes=7,
        use_duplicate_detection=False,
        confirmation_window_size_bytes=8,
        producer_window_size_bytes=9,
    )
