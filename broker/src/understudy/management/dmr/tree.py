"""The resources of a broker.xml that the reader has checked: found by address, with the values of their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from understudy.config.edit.paths import Step
from understudy.config.reading.document import Node
from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.grammar import Address
from understudy.management.dmr.resources import (
    DEFAULT_SERVER,
    RESOURCES,
    SERVER,
    SOCKET_BINDING,
    SUBSYSTEM,
    Attribute,
    ResourceType,
    Type,
    resource_type,
)
from understudy.management.dmr.values import Value

_GROUP: Final = "socket-binding-group"


def not_found(address: Address) -> ManagementError:
    """The failure of an operation on a resource that does not exist."""
    return ManagementError(f"WFLYCTL0216: Management resource '{shown_address(address)}' not found")


def shown_address(address: Address) -> str:
    """An address as failures show it."""
    steps = ",".join(f'("{kind}" => "{name}")' for kind, name in address)
    return f"[{steps}]"


@dataclass(frozen=True, slots=True)
class Resource:
    """The resource of an address, which may not exist."""

    address: Address
    type: ResourceType
    path: str
    """Path of its element in broker.xml."""
    node: Node | None
    """The element; None: it is not in broker.xml."""
    server: Node
    """The element of the server."""

    @property
    def exists(self) -> bool:
        """Whether the resource exists."""
        return self.type.fixed or self.node is not None

    def value(self, attribute: Attribute) -> Value:
        """The value of an attribute of the configuration, or its default."""
        given = self.given(attribute)
        return self.type.default(attribute) if given is None else given

    def given(self, attribute: Attribute) -> Value:
        """The value of an attribute that broker.xml has; None: it has none."""
        if self.node is None or attribute.constant is not None or attribute.runtime or attribute.unserved:
            return None
        path, at, name = attribute.element.rpartition("@")
        steps = [step for step in (path if at else attribute.element).split("/") if step]
        found = list(_below(self.node, steps))
        if attribute.type is Type.LIST:
            return [str(each.value) for each in found] or None
        if not found:
            return None
        return attribute.shown(found[0].attributes.get(name) if at else found[0].value)

    def place(self, attribute: Attribute) -> str:
        """The path of an attribute in broker.xml."""
        return f"{self.path}/{attribute.element}" if attribute.element else self.path


class Tree:
    """The resources of one broker.xml."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Args:
        nodes: The element ``core``, and the elements ``server``.
        """
        self._core = nodes[0]
        self._servers = {str(each.attributes.get("name")): each for each in nodes[1:]}

    def resource(self, address: Address) -> Resource:
        """The resource below a server, or a server.

        Raises:
            ManagementError: the address leads to no resource of the model, to one of another kind, or to a type that
                is not served.
        """
        if len(address) == 2 and address[0][0] == _GROUP and address[1][0] == SOCKET_BINDING.type:
            raise ManagementError(str(SOCKET_BINDING.unserved))
        if len(address) not in (2, 3) or address[0] != SUBSYSTEM or address[1][0] != SERVER.type:
            raise not_found(address)
        name = address[1][1]
        server = self._core if name == DEFAULT_SERVER else self._servers.get(name)
        if server is None:
            raise not_found(address[:2])
        path = "core" if server is self._core else str(Step(SERVER.type, ("name", name)))
        if len(address) == 2:
            return Resource(address, SERVER, path, server, server)
        return self._child(address, server, path)

    def _child(self, address: Address, server: Node, path: str) -> Resource:
        kind, name = address[2]
        found = resource_type(kind, name)
        if found is None:
            raise not_found(address)
        if found.unserved is not None:
            raise ManagementError(found.unserved)
        if found.name is not None:
            node = next(_below(server, found.element.split("/")), None)
            return Resource(address, found, f"{path}/{found.element}", node, server)
        if "'" in name and '"' in name:
            raise ManagementError(f"{name!r} is no name: it has both kinds of quotes")
        container, _, entry = found.element.rpartition("/")
        listed = _below(server, found.element.split("/"))
        node = next((each for each in listed if each.attributes.get(found.key) == name), None)
        return Resource(address, found, f"{path}/{container}/{Step(entry, (found.key, name))}", node, server)

    def existing(self, address: Address) -> Resource:
        """The same for a resource that exists. Raises ManagementError: it does not."""
        found = self.resource(address)
        if not found.exists:
            raise not_found(address)
        return found

    def policy(self, resource: Resource) -> str | None:
        """Name of the HA policy of the server of a resource; None: it has none."""
        for kind, name in self.children(resource.address[:2]):
            if kind == "ha-policy":
                return name
        return None

    def children(self, address: Address) -> list[tuple[str, str]]:
        """Type and name of the resources directly below an address, sorted. Raises ManagementError."""
        if not address:
            return [SUBSYSTEM]
        if address == (SUBSYSTEM,):
            return [(SERVER.type, name) for name in sorted([DEFAULT_SERVER, *self._servers])]
        parent = self.existing(address)
        if parent.type is not SERVER:
            return []
        return sorted(self._below_server(parent.server))

    def _below_server(self, server: Node) -> Iterator[tuple[str, str]]:
        for each in RESOURCES:
            if each.unserved is not None:
                continue
            nodes = list(_below(server, each.element.split("/")))
            if each.name is None:
                yield from ((each.type, str(node.attributes.get(each.key))) for node in nodes)
            elif nodes or each.fixed:
                yield each.type, each.name


def _below(node: Node, steps: Sequence[str]) -> Iterator[Node]:
    """The elements at a path below one."""
    if not steps:
        yield node
        return
    for child in node.all(steps[0]):
        yield from _below(child, steps[1:])
