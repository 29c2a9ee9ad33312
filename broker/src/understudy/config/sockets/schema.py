"""Schema rows of the elements ``interface`` and ``socket-binding-group`` beside ``core``.

Names and defaults are those of the management model of WildFly.
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, container, named

PORT_MAX: Final = 65_535

_PORT: Final = Attribute("port", Kind.INTEGER, "Its port; 0: the system chooses.", "0", minimum=0, maximum=PORT_MAX)

INTERFACE: Final[Element] = container(
    "interface",
    "A named address of this host.",
    attributes=(named("Name."), Attribute("inet-address", Kind.TEXT, "IP address or host name.", required=True)),
    repeated=True,
)

SOCKET_BINDING_GROUP: Final[Element] = container(
    "socket-binding-group",
    "Named ports, which acceptors, connectors and groups refer to.",
    container(
        "socket-binding",
        "A port of this host, or a multicast group.",
        attributes=(
            named("Name."),
            _PORT,
            Attribute("interface", Kind.TEXT, "Name of its interface. Default: that of the group."),
            Attribute("fixed-port", Kind.BOOLEAN, "Whether port-offset does not count for it.", "false"),
            Attribute("multicast-address", Kind.TEXT, "Address of its multicast group."),
            Attribute("multicast-port", Kind.INTEGER, "Port of its multicast group.", minimum=1, maximum=PORT_MAX),
        ),
        repeated=True,
    ),
    container(
        "outbound-socket-binding",
        "The address of another host.",
        attributes=(
            named("Name."),
            Attribute("host", Kind.TEXT, "IP address or host name.", required=True),
            Attribute("port", Kind.INTEGER, "Its port.", required=True, minimum=1, maximum=PORT_MAX),
        ),
        repeated=True,
    ),
    attributes=(
        named("Name."),
        Attribute("default-interface", Kind.TEXT, "Name of the interface of its bindings."),
        Attribute("port-offset", Kind.INTEGER, "Added to the ports of this host.", "0", minimum=0, maximum=PORT_MAX),
    ),
    repeated=True,
)

SOCKET_ROWS: Final[tuple[Element, ...]] = (INTERFACE, SOCKET_BINDING_GROUP)
"""The elements beside ``core``."""
