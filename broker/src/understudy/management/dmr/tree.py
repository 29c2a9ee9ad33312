"""The resources of a broker.xml that the reader has checked: found by address, with the values of their attributes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from understudy.config.edit.paths import Step
from understudy.config.reading.document import Node
from understudy.config.reading.named_paths import named_paths, resolved
from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.grammar import Address
from understudy.management.dmr.kinds import CORE, Attribute, ResourceType, Type
from understudy.management.dmr.resources import (
    CONFIGURATIONS,
    DEFAULT_SERVER,
    INTERFACE,
    NAMED_PATH,
    RESOURCES,
    SERVER,
    SOCKET_BINDING_GROUP,
    SOCKET_BINDINGS,
    SUBSYSTEM,
    resource_type,
)
from understudy.management.dmr.values import Value

#: Types of the resources beside the subsystem.
_TOP: Final = (INTERFACE, NAMED_PATH, SOCKET_BINDING_GROUP)


#: Types of the reference that have no resource here, with what takes its place.
_ELSEWHERE: Final = {
    "bridge": "`understudy bridge create`, or bridges of broker.xml",
    "divert": "`understudy operation invoke broker createDivert`, or diverts of broker.xml",
    "jms-queue": "`understudy queue create`, or addresses of broker.xml",
    "jms-topic": "`understudy address create`, or addresses of broker.xml",
    "security-setting": "security-settings of broker.xml",
}


def not_found(address: Address) -> ManagementError:
    """The failure of an operation on a resource that does not exist."""
    kind = address[-1][0] if len(address) > 2 else ""
    reason = f": this version has no resource {kind}; use {_ELSEWHERE[kind]}" if kind in _ELSEWHERE else ""
    return ManagementError(f"WFLYCTL0216: Management resource '{shown_address(address)}' not found{reason}")


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
    taken: bool = False
    """Whether a resource of another type has the name and the element."""

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
        if self.node is None or attribute.runtime or attribute.unserved:
            return None
        path, at, name = attribute.element.rpartition("@")
        steps = [step for step in (path if at else attribute.element).split("/") if step]
        found = list(_below(self.node, steps))
        if attribute.type is Type.LIST:
            return [str(each.value) for each in found] or None
        if not found:
            return None
        value = found[0].attributes.get(name) if at else found[0].value
        # the element of an acceptor or connector with a socket binding is empty
        return None if value == "" and not attribute.element else attribute.shown(value)

    def place(self, attribute: Attribute) -> str:
        """The path of an attribute in broker.xml."""
        return f"{self.path}/{attribute.element}" if attribute.element else self.path


class Tree:
    """The resources of one broker.xml."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Args:
        nodes: The element ``core``, and the elements beside it.
        """
        self._core = nodes[0]
        self._servers = {str(each.attributes.get("name")): each for each in nodes if each.element.name == SERVER.type}
        self._top = [each for each in nodes[1:] if each.element.name != SERVER.type]

    def directory(self, resource: Resource) -> str:
        """The directory of a resource ``path``, relative to the instance directory or absolute. Raises ConfigError."""
        path, start = (resource.value(resource.type.attribute(name)) for name in ("path", "relative-to"))
        return resolved(str(path), None if start is None else str(start), named_paths(self._top))

    def resource(self, address: Address) -> Resource:
        """The resource of an address, which may not exist.

        Raises:
            ManagementError: the address leads to no resource of the model, to one of another kind, or to one below
                another that does not exist.
        """
        if address and resource_type(*address[0], _TOP) is not None:
            return self._beside(address)
        if not 2 <= len(address) <= 4 or address[0] != SUBSYSTEM or address[1][0] != SERVER.type:
            raise not_found(address)
        name = address[1][1]
        server = self._core if name == DEFAULT_SERVER else self._servers.get(name)
        path = CORE if server is self._core else _path(address, "", SERVER.type, "name", name)
        if len(address) == 2:
            return Resource(address, SERVER, path, server)
        if server is None:
            raise not_found(address[:2])
        found = self._below(address[:3], RESOURCES, path, server)
        if len(address) == 3:
            return found
        among = [kind for policy, kind in CONFIGURATIONS if policy == found.type.name]
        if not found.exists or resource_type(*address[3], among) is None:
            raise not_found(address)
        return self._below(address, among, path, server)

    def _beside(self, address: Address) -> Resource:
        """The resource beside the subsystem, or below one of those."""
        (kind, name), *rest = address
        node = next((each for each in self._top if each.element.name == kind and _named(each, name)), None)
        path = _path(address, "", kind, "name", name)
        found = resource_type(kind, name, _TOP)
        assert found is not None
        if not rest:
            return Resource(address, found, path, node)
        if len(rest) > 1 or found is not SOCKET_BINDING_GROUP:
            raise not_found(address)
        if node is None:
            raise not_found(address[:1])
        below = resource_type(*rest[0], SOCKET_BINDINGS)
        if below is None:
            raise not_found(address)
        element = below.element.rpartition("/")[2]
        child = next((each for each in node.all(element) if _named(each, rest[0][1])), None)
        return Resource(address, below, _path(address, f"{path}/", element, "name", rest[0][1]), child)

    def _below(self, address: Address, among: Sequence[ResourceType], path: str, server: Node) -> Resource:
        kind, name = address[-1]
        found = resource_type(kind, name, among)
        if found is None:
            raise not_found(address)
        if found.name is not None:
            node = next(_below(server, found.element.split("/")), None)
            return Resource(address, found, f"{path}/{found.element}", node)
        container, _, entry = found.element.rpartition("/")
        listed = _below(server, found.element.split("/"))
        node = next((each for each in listed if each.attributes.get(found.key) == name), None)
        own = node is not None and found.marks(node.attributes)
        place = _path(address, f"{path}/{container}/", entry, found.key, name)
        return Resource(address, found, place, node if own else None, taken=node is not None and not own)

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
            return sorted([SUBSYSTEM, *((each.element.name, str(each.attributes.get("name"))) for each in self._top)])
        if address == (SUBSYSTEM,):
            return [(SERVER.type, name) for name in sorted([DEFAULT_SERVER, *self._servers])]
        parent = self.existing(address)
        if parent.node is None:
            return []
        if parent.type is SERVER:
            return sorted(_resources(parent.node, RESOURCES))
        if parent.type is SOCKET_BINDING_GROUP:
            return sorted(
                (kind.type, str(each.attributes.get("name")))
                for kind in SOCKET_BINDINGS
                for each in parent.node.all(kind.element.rpartition("/")[2])
            )
        below = [kind for policy, kind in CONFIGURATIONS if policy == parent.type.name]
        roles = {kind.element.rpartition("/")[2]: str(kind.name) for kind in below}
        return sorted(("configuration", name) for role, name in roles.items() if parent.node.child(role) is not None)


def _resources(server: Node, among: Sequence[ResourceType]) -> Iterator[tuple[str, str]]:
    for each in among:
        nodes = [node for node in _below(server, each.element.split("/")) if each.marks(node.attributes)]
        if each.name is None:
            yield from ((each.type, str(node.attributes.get(each.key))) for node in nodes)
        elif nodes or each.fixed:
            yield each.type, each.name


def _named(node: Node, name: str) -> bool:
    return node.attributes.get("name") == name


def _path(address: Address, around: str, element: str, key: str, name: str) -> str:
    """The path of a named element. Raises ManagementError: the name cannot be in a path."""
    if "'" in name and '"' in name:
        raise ManagementError(f"{shown_address(address)}: {name!r} is no name: it has both kinds of quotes")
    return around + str(Step(element, (key, name)))


def _below(node: Node, steps: Sequence[str]) -> Iterator[Node]:
    """The elements at a path below one."""
    if not steps:
        yield node
        return
    for child in node.all(steps[0]):
        yield from _below(child, steps[1:])
