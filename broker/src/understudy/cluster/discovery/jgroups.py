"""JGroups stacks as carriers of our own broadcasts (ADR 0061, docs/operate/clustering.md).

JGroups itself is not spoken: a stack says how members find each other, and the same means carry our datagrams.

- ``UDP`` with ``PING``, and ``MPING`` with any transport: multicast to ``mcast_addr`` and ``mcast_port``.
- ``TCP`` or ``TCP_NIO2`` with ``TCPPING``: datagrams to the ports of ``initial_hosts``.
- ``FILE_PING`` with any transport: files in ``location``.

Protocols for reliability, failure detection and flow control have no effect, because nothing but broadcasts is sent.
Encryption and authentication are errors, as is every other discovery: such a stack promises a protection or a way that
does not exist here.
"""

from __future__ import annotations

import difflib
import ipaddress
import posixpath
import re
from collections.abc import Mapping
from typing import Final
from xml.parsers import expat

from understudy.cluster.discovery.carriers import AnnouncementDirectory, Carrier, MemberList, Multicast
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import BROADCAST_NAME_UNITS_MAX, DISCOVERY_HOSTS_MAX, DISCOVERY_PORTS_MAX, JGROUPS_BYTES_MAX

_TRANSPORTS: Final = ("UDP", "TCP", "TCP_NIO2")
_DISCOVERIES: Final = ("PING", "MPING", "TCPPING", "FILE_PING")
#: Protocols without effect on broadcasts.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "BARRIER", "BATCH", "BATCH2", "BYTE_COUNTER", "COMPRESS", "COUNTER", "FD", "FD_ALL", "FD_ALL2", "FD_ALL3",
        "FD_HOST", "FD_PING", "FD_SOCK", "FD_SOCK2", "FLUSH", "FORK", "FRAG", "FRAG2", "FRAG3", "FRAG4", "GMS",
        "MAKE_BATCH", "MERGE2", "MERGE3", "MFC", "MFC_NB", "NAKACK", "NAKACK2", "NAKACK3", "NAKACK4", "PERF",
        "RATE_LIMITER", "RED", "RSVP", "SIZE", "STABLE", "STATE", "STATE_SOCK", "STATE_TRANSFER", "STATS",
        "SUPERVISOR", "TRACE", "UFC", "UFC_NB", "UNICAST", "UNICAST2", "UNICAST3", "UNICAST4",
        "VERIFY_SUSPECT", "VERIFY_SUSPECT2",
    }
)  # fmt: skip
#: Values of bind_addr that leave the choice of the interface to the system.
_ANY_INTERFACE: Final = frozenset({"GLOBAL", "SITE_LOCAL", "LINK_LOCAL", "NON_LOOPBACK"})
_HOST: Final = re.compile(r"\s*(\[[0-9A-Fa-f:.%\w]+\]|[^\s,\[\]]+?)\s*\[\s*(\d{1,5})\s*\]\s*\Z")
_DEPTH_MAX: Final = 8
_PROTOCOLS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Protocol:
    element: str
    """Name of the element as it is written, such as ``pbcast.NAKACK2``."""
    name: str
    """Name of the protocol's class without its package."""
    attributes: Mapping[str, str]
    """Attributes of the protocol without those whose value is a property that is not given."""
    missing: Mapping[str, str]
    """Properties without a value, by the attribute that needs them."""
    line: int


class _Stack:
    """Protocols of one JGroups file."""

    def __init__(self, file: str, properties: Mapping[str, str]) -> None:
        self._file = file
        self._properties = properties
        self.folder = posixpath.dirname(file)
        self._path: list[str] = []
        self.protocols: list[_Protocol] = []

    def error(self, message: str, element: str, line: int | None, hint: str | None = None) -> ConfigError:
        """An error at an element of the file."""
        return ConfigError(
            message, path=f"config/{element}" if element else "config", file=self._file, line=line, hint=hint
        )

    def parse(self, data: bytes) -> None:
        """Read the elements. Raises ConfigError."""
        if len(data) > JGROUPS_BYTES_MAX:
            raise self.error(f"{len(data)} bytes, limit {JGROUPS_BYTES_MAX}", "", None)
        parser = expat.ParserCreate()
        parser.buffer_text = True

        def start(name: str, attributes: dict[str, str]) -> None:
            self._start(name, attributes, parser.CurrentLineNumber)

        def doctype(*ignored: object) -> None:
            raise self.error("a DOCTYPE is not allowed", "", parser.CurrentLineNumber)

        parser.StartElementHandler = start
        parser.EndElementHandler = lambda name: self._path.pop() and None
        parser.StartDoctypeDeclHandler = doctype
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise self.error(f"not well-formed XML: {expat.ErrorString(error.code)}", "", error.lineno) from None

    def _start(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        local = name.rpartition(":")[2]
        depth = len(self._path)
        if depth == 0 and local != "config":
            hint = "config with one element for each protocol; the form of application servers is not read"
            raise self.error(f"the root element is {local!r}", "", line, hint)
        self._path.append(local)
        if depth >= _DEPTH_MAX:
            raise self.error(f"more than {_DEPTH_MAX} elements inside each other", local, line)
        if depth == 1:
            if len(self.protocols) >= _PROTOCOLS_MAX:
                raise self.error(f"more than {_PROTOCOLS_MAX} protocols", local, line)
            plain, missing = dict[str, str](), dict[str, str]()
            for key, text in attributes.items():
                if key == "xmlns" or ":" in key:
                    continue
                try:
                    plain[key] = self._substitute(text)
                except KeyError as error:
                    missing[key] = str(error.args[0])
            self.protocols.append(_Protocol(local, local.rpartition(".")[2], plain, missing, line))

    def _substitute(self, text: str) -> str:
        """Replace ``${name}``, ``${name,other}`` and ``${name:default}`` once. Raises KeyError: it has no value."""

        def value(match: re.Match[str]) -> str:
            names, colon, default = match[1].partition(":")
            for name in names.split(","):
                if name.strip() in self._properties:
                    return self._properties[name.strip()]
            if not colon:
                raise KeyError(names.strip())
            return default

        return re.sub(r"\$\{([^}]*)\}", value, text)

    def attribute(self, protocol: _Protocol, name: str, default: str = "") -> str:
        """The value of an attribute that is used. Raises ConfigError: it is a property without a value."""
        if name in protocol.missing:
            hint = f"give it by --property {protocol.missing[name]}=VALUE, or write ${{name:default}}"
            message = f"property {protocol.missing[name]!r} has no value and no default"
            raise self.error(message, f"{protocol.element}/@{name}", protocol.line, hint)
        return protocol.attributes.get(name, default)


def read_stack(data: bytes, channel: str, *, file: str, properties: Mapping[str, str] | None = None) -> Carrier:
    """The carrier that a JGroups stack asks for.

    Args:
        data: The bytes of its file, at most ``JGROUPS_BYTES_MAX``.
        channel: Name of the JGroups cluster: separates the clusters that use one carrier.
        file: Name of the file, for messages.
        properties: Values for ``${name}``.

    Raises:
        ConfigError: it cannot be read, or a protocol cannot be mapped; the message names the element and the line.
    """
    stack = _Stack(file, properties or {})
    if not channel or len(channel) > BROADCAST_NAME_UNITS_MAX:
        raise stack.error(f"a channel name of {len(channel)} characters, 1 to {BROADCAST_NAME_UNITS_MAX}", "", None)
    stack.parse(data)
    transport = discovery = None
    for each in stack.protocols:
        if each.name in _TRANSPORTS:
            if transport is not None:
                raise stack.error(f"a second transport, after {transport.name}", each.name, each.line)
            transport = each
        elif each.name in _DISCOVERIES:
            if discovery is not None:
                raise stack.error(f"a second discovery protocol, after {discovery.name}", each.name, each.line)
            discovery = each
        elif each.name not in _WITHOUT_EFFECT:
            raise _unknown(stack, each)
    if transport is None:
        raise stack.error("no transport", "", None, f"one of {', '.join(_TRANSPORTS)}")
    if discovery is None:
        raise stack.error("no discovery protocol", "", None, f"one of {', '.join(_DISCOVERIES)}")
    return _carrier(stack, transport, discovery, channel)


def _unknown(stack: _Stack, protocol: _Protocol) -> ConfigError:
    name = protocol.name
    if "ENCRYPT" in name or name.startswith(("AUTH", "SASL", "SSL")):
        hint = "broadcasts are neither encrypted nor authenticated; the connections that follow them are"
        return stack.error(f"protocol {name} cannot be mapped", protocol.element, protocol.line, hint)
    near = difflib.get_close_matches(name, [*_TRANSPORTS, *_DISCOVERIES, *sorted(_WITHOUT_EFFECT)], n=1, cutoff=0.8)
    hint = f"did you mean {near[0]!r}?" if near else f"discovery is possible by {', '.join(_DISCOVERIES)}"
    return stack.error(f"protocol {name} cannot be mapped", protocol.element, protocol.line, hint)


def _carrier(stack: _Stack, transport: _Protocol, discovery: _Protocol, channel: str) -> Carrier:
    own_address = "bind_addr" in discovery.attributes or "bind_addr" in discovery.missing
    bind_address = _bind_address(stack, discovery if own_address else transport)
    if discovery.name == "FILE_PING":
        location = stack.attribute(discovery, "location")
        if not location:
            hint = "the path of a directory that every member reaches; a relative one starts at the folder of the file"
            raise stack.error("attribute location", discovery.name, discovery.line, hint)
        return AnnouncementDirectory(posixpath.normpath(posixpath.join(stack.folder, location)), channel)
    if discovery.name == "TCPPING":
        if transport.name == "UDP":
            raise stack.error("TCPPING with the transport UDP cannot be mapped", discovery.name, discovery.line)
        return MemberList(
            hosts=_hosts(stack, discovery),
            channel=channel,
            port_range=_number(stack, discovery, "port_range", 1, DISCOVERY_PORTS_MAX),
            bind_address=bind_address,
            bind_port=_number(stack, transport, "bind_port", 7800, 65_535, 1),
            bind_range=_number(stack, transport, "port_range", 10, 1_000),
        )
    if discovery.name == "PING" and transport.name != "UDP":
        hint = "PING needs the transport UDP; use MPING, TCPPING or FILE_PING"
        raise stack.error(
            f"PING with the transport {transport.name} cannot be mapped", discovery.name, discovery.line, hint
        )
    source = transport if discovery.name == "PING" else discovery
    address, port = ("228.8.8.8", 7600) if discovery.name == "PING" else ("230.5.6.7", 7555)
    text = stack.attribute(source, "mcast_addr", address)
    group = _ip(text)
    if group is None or not group.is_multicast:
        raise stack.error(f"mcast_addr {text!r} is no multicast address", source.name, source.line)
    return Multicast(
        text,
        _number(stack, source, "mcast_port", port, 65_535, 1),
        bind_address,
        ttl=_number(stack, source, "ip_ttl", 8, 255),
        channel=channel,
    )


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _bind_address(stack: _Stack, protocol: _Protocol) -> str | None:
    text = stack.attribute(protocol, "bind_addr").strip()
    if not text or text.upper() in _ANY_INTERFACE:
        return None
    if text.lower() in ("loopback", "localhost"):
        return "127.0.0.1"
    if _ip(text) is None:
        hint = f"an IP address, loopback or one of {', '.join(sorted(_ANY_INTERFACE))}"
        raise stack.error(f"bind_addr {text!r} cannot be mapped", protocol.name, protocol.line, hint)
    return text


def _number(stack: _Stack, protocol: _Protocol, name: str, default: int, maximum: int, minimum: int = 0) -> int:
    text = stack.attribute(protocol, name, str(default)).strip()
    if not (text.isascii() and text.isdigit() and len(text) < 9 and minimum <= int(text) <= maximum):
        raise stack.error(f"{name}={text!r}, a number from {minimum} to {maximum}", protocol.name, protocol.line)
    return int(text)


def _hosts(stack: _Stack, protocol: _Protocol) -> tuple[tuple[str, int], ...]:
    texts = [each for each in stack.attribute(protocol, "initial_hosts").split(",") if each.strip()]
    if not 1 <= len(texts) <= DISCOVERY_HOSTS_MAX:
        message = f"initial_hosts has {len(texts)} entries, 1 to {DISCOVERY_HOSTS_MAX} are possible"
        raise stack.error(message, protocol.name, protocol.line, "host[7800],other[7800]")
    found = []
    for text in texts:
        match = _HOST.match(text)
        if match is None or not 0 < int(match[2]) < 65_536:
            message = f"initial_hosts: {text.strip()!r} is no host"
            raise stack.error(message, protocol.name, protocol.line, "host[7800],other[7800]")
        found.append((match[1].strip("[]"), int(match[2])))
    return tuple(found)
