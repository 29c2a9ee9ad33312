"""The HTTP upgrade that a connector asks for (artemis-core s. 1.4; ADR 0069)."""

from __future__ import annotations

from understudy.client.core.url.options import Connector
from understudy.wire.core.http_upgrade import UpgradeExchange


def upgrade_of(connector: Connector, token: bytes) -> UpgradeExchange | None:
    """The exchange that comes before CORE; None: there is none.

    Args:
        connector: To be dialled.
        token: 16 random bytes.

    Raises:
        LocalProtocolError: a name that a broker announced cannot be sent.
    """
    if not connector.http_upgrade:
        return None
    names = {"activemqServerName": connector.server_name, "httpUpgradeEndpoint": connector.upgrade_endpoint}
    return UpgradeExchange(connector.host, connector.port, names, token)
