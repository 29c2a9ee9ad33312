# SPDX-License-Identifier: Apache-2.0
"""Acceptors, connectors and management socket of one node, from addresses, ports and URL parameters.

The URLs are those of the Artemis manual ("Configuring the transport"): ``tcp://host:port?name=value;name=value`` with
percent-encoded values. Pure: no Ansible, no network.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import quote

CORE = "core"
"""Name of the acceptor that every node has."""
DEFAULT_PORT = 61616
AMQP091 = "amqp091"
"""Name of the acceptor for AMQP 0-9-1 alone."""
AMQP091_PORT = 5672
AUTOMATIC = -1
"""Value of a port that the other inputs decide."""
PROTOCOLS = ("CORE", "AMQP091")
"""Protocols that a broker serves on an acceptor without the parameter protocols."""
CORE_ONLY_PARAMETERS = ("protocols", "httpUpgradeEnabled", "httpUpgradeEndpoint", "activemqServerName")
"""Parameters of the acceptor core that the one for AMQP 0-9-1 does not share."""
PORT_MAX = 65535
WILDCARDS = ("0.0.0.0", "::", "*")
MEMBERS, CLIENTS = SOURCES = ("members", "clients")
"""Who may connect to a socket: the other nodes of the cluster, or clients."""
SOCKET_KEYS = ("port", "interface", "protocols", "sources", "parameters")
INTERFACE_KEYS = ("bind_address", "advertise_address")
_TRUST_PATH = re.compile(r"trustStorePath=[^&,)]*")


def tcp_url(address: str, port: int, parameters: Mapping[str, object] | None = None, *, separator: str = ";") -> str:
    """``tcp://`` URL of a socket; an IPv6 address gets its brackets, a list as parameter is joined with commas."""
    base = f"tcp://{_host(address)}:{port}"
    query = separator.join(f"{quote(str(name))}={_parameter(value)}" for name, value in (parameters or {}).items())
    return f"{base}?{query}" if query else base


def client_url(url: str, protocol: str, trusted: str = "") -> str:
    """URL by which the commands of the broker reach the same sockets over a protocol.

    Args:
        url: URL of CORE: ``tcp://…`` of one node, or ``(tcp://…,tcp://…)?…`` of several.
        protocol: One of ``PROTOCOLS``.
        trusted: Path of the trusted certificates on the host of the client, in place of the path that each node has on
            its own host; without it the paths stay.

    Raises:
        ValueError: an unknown protocol, or parameters that differ between nodes, which a URL of AMQP 0-9-1 has for all
            of them together.
    """
    if protocol not in PROTOCOLS:
        raise ValueError(f"{protocol!r} is none of {', '.join(PROTOCOLS)}")
    if trusted:
        url = _TRUST_PATH.sub(lambda _found: f"trustStorePath={_parameter(trusted)}", url)
    if protocol == "CORE":
        return url
    inside, common = url, ""
    if url.startswith("("):
        inside, common = url[1:].split(")", 1)
    places, queries = [], set()
    for each in inside.split(",tcp://"):
        place = each.removeprefix("tcp://").partition("?")
        places.append(place[0])
        queries.add(place[2])
    if len(queries) > 1:
        raise ValueError(f"the nodes {', '.join(places)} have different parameters of their connectors")
    parameters = [each for each in f"{queries.pop()}&{common.removeprefix('?')}".split("&") if each]
    secure = "sslEnabled=true" in parameters
    rest = "&".join(each for each in parameters if each != "sslEnabled=true")
    return f"amqp091{'+tls' if secure else ''}://{','.join(places)}/{'?' if rest else ''}{rest}"


def http_url(address: str, port: int) -> str:
    """``http://`` URL of a management socket."""
    return f"http://{_host(address)}:{port}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _parameter(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(_parameter(each) for each in value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # Braces stay, because ${name} in broker.xml stands for a property of the start.
    return quote(text, safe="/,:${}")


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address; a name is taken as reachable unless it is localhost."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def management_options(address: str, port: int, token_file: str) -> list[str]:
    """Options of ``understudy run`` for the management interface; an address beyond this machine must be allowed."""
    options = ["--http", http_url(address, port).removeprefix("http://"), "--http-token-file", token_file]
    return options if is_loopback(address) else [*options, "--http-allow-remote"]


@dataclass(frozen=True)
class Endpoint:
    """A named socket: an acceptor's or a connector's."""

    name: str
    address: str
    port: int
    parameters: Mapping[str, object] = field(default_factory=dict)
    origin: str = ""
    """Where it comes from in the inputs, for errors."""
    advertised: str = ""
    """Address that others connect to, if the socket is an acceptor."""
    sources: tuple[str, ...] = SOURCES
    """Sources that may connect, if the socket is an acceptor; for the firewall."""

    @property
    def place(self) -> str:
        """``ADDRESS:PORT``, as a broker reports its partner."""
        return f"{self.address}:{self.port}"

    @property
    def url(self) -> str:
        """URL of the socket as broker.xml has it."""
        return tcp_url(self.address, self.port, self.parameters)


@dataclass(frozen=True)
class Sockets:
    """All sockets of a node, with the port offset added, and what is wrong with the inputs."""

    acceptors: tuple[Endpoint, ...]
    connector: Endpoint
    connectors: tuple[Endpoint, ...]
    """Further connectors; that of the node itself and those of other nodes are not among them."""
    management_address: str
    management_port: int
    faults: tuple[tuple[str, str], ...]
    """Input without prefix, and the problem."""

    @property
    def core(self) -> Endpoint:
        """The acceptor that every node has."""
        return self.acceptors[0]

    @property
    def management_url(self) -> str:
        return http_url(self.management_address, self.management_port)


def open_sockets(name: str, values: Mapping[str, object], prefix: str = "broker_") -> Sockets:
    """The sockets that the values describe.

    Args:
        name: Name of the node's own connector.
        values: ``advertise_address``, ``bind_address``, ``port``, ``port_offset``, ``protocols``, ``amqp091_port``,
            ``amqp091_virtual_hosts``, ``interfaces``, ``sockets``, ``connectors``, ``connector_parameters``,
            ``management_address`` and ``management_port``.
        prefix: What precedes these names in the inputs, for errors.
    """
    faults: list[tuple[str, str]] = []
    offset = int(str(values.get("port_offset", 0)))

    def port(variable: str, given: object) -> int:
        number = int(str(given)) + offset
        if 1 <= number <= PORT_MAX:
            return number
        shown = f"{given} with the offset {offset}" if offset else f"{given}"
        faults.append((variable, f"is {shown}; give a port from 1 to {PORT_MAX}"))
        return int(str(given))

    bind_address, core_port = str(values["bind_address"]), port("port", values["port"])
    advertised = str(values["advertise_address"])
    interfaces = _interfaces(values, faults)
    core = Endpoint(CORE, bind_address, core_port, {}, f"{prefix}port", advertised)
    others: list[Endpoint] = []
    for socket, entry in _sockets(values, faults):
        parameters, sources = _parameters_of(socket, entry, faults), _sources(socket, entry, faults)
        origin = f"{prefix}sockets.{socket}"
        if socket == CORE:
            if "port" in entry or "interface" in entry:
                problem = f"has a port or an interface for {CORE}; set {prefix}port and {prefix}bind_address"
                faults.append(("sockets", problem))
            core = Endpoint(CORE, bind_address, core_port, parameters, origin, advertised, sources)
            continue
        if not _is_number(entry.get("port")):
            faults.append(("sockets", f"lacks the port of {socket!r}, which is a number"))
            continue
        chosen = entry.get("interface")
        if chosen is not None and chosen not in interfaces:
            known = ", ".join(sorted(interfaces)) or "none"
            faults.append(("sockets", f"has the interface {chosen!r} for {socket!r}; {prefix}interfaces has {known}"))
            continue
        bind, advertise = (bind_address, advertised) if chosen is None else interfaces[str(chosen)]
        number = port("sockets", entry["port"])
        others.append(Endpoint(socket, bind, number, parameters, origin, advertise, sources))
    protocols = _protocols(values, faults)
    if "AMQP091" not in protocols and "protocols" not in core.parameters:
        core = replace(core, parameters={"protocols": list(protocols), **core.parameters})
    amqp091_port = _amqp091_port(values, protocols)
    if amqp091_port:
        if any(each.name == AMQP091 for each in others):
            problem = f"has the acceptor {AMQP091}, which {prefix}amqp091_port makes too; set that to 0"
            faults.append(("sockets", problem))
        number = port("amqp091_port", amqp091_port)
        shared = amqp091_parameters(core.parameters, _texts(values.get("amqp091_virtual_hosts") or ()))
        origin = f"{prefix}amqp091_port"
        others.append(Endpoint(AMQP091, bind_address, number, shared, origin, advertised, (CLIENTS,)))
    connectors = tuple(_connectors(values, prefix, faults))
    own = Endpoint(name, advertised, core_port, _mapping(values, "connector_parameters"), f"{prefix}port")
    faults.extend(("connectors", problem) for problem in _repeated([own, *connectors]))
    return Sockets(
        acceptors=(core, *others),
        connector=own,
        connectors=connectors,
        management_address=str(values["management_address"]),
        management_port=port("management_port", values["management_port"]),
        faults=tuple(faults),
    )


def amqp091_parameters(core: Mapping[str, object], virtual_hosts: Sequence[str]) -> dict[str, object]:
    """Parameters of the acceptor for AMQP 0-9-1.

    Args:
        core: Parameters of the acceptor core, which it shares, so that a node with TLS has no port without.
        virtual_hosts: Beside the default one.
    """
    shared = {name: value for name, value in core.items() if name not in (*CORE_ONLY_PARAMETERS, "virtualHosts")}
    hosts = {"virtualHosts": ",".join(virtual_hosts)} if virtual_hosts else {}
    return {"protocols": "AMQP091", **hosts, **shared}


def _protocols(values: Mapping[str, object], faults: list[tuple[str, str]]) -> tuple[str, ...]:
    """The protocols of the node."""
    found = _texts(values["protocols"]) if values.get("protocols") else PROTOCOLS
    unknown = [each for each in found if each not in PROTOCOLS]
    if unknown:
        faults.append(("protocols", f"has {unknown[0]!r}; give {' and '.join(PROTOCOLS)}"))
    elif "CORE" not in found:
        faults.append(("protocols", "lacks CORE, by which nodes of a cluster and tools talk to the broker; add it"))
    return tuple(found)


def _amqp091_port(values: Mapping[str, object], protocols: Sequence[str]) -> int:
    """Port of the acceptor for AMQP 0-9-1 without the offset; 0: there is none.

    Without a given port there is one beside the default port of the acceptor core only: several nodes of one host that
    have ports of their own would have the same second port. An inventory that uses the port keeps it.
    """
    given = int(str(values.get("amqp091_port", AUTOMATIC)))
    if "AMQP091" not in protocols:
        return 0
    if given != AUTOMATIC:
        return given
    return automatic_amqp091_port(int(str(values["port"])), _mapping(values, "sockets"))


def automatic_amqp091_port(core_port: int, sockets: Mapping[str, object]) -> int:
    """Port of the acceptor for AMQP 0-9-1 where none is given; 0: there is none.

    Args:
        core_port: Port of the acceptor core, without the offset.
        sockets: Entries of other acceptors by name.
    """
    taken = any(
        name == AMQP091 or (isinstance(entry, Mapping) and str(entry.get("port")) == str(AMQP091_PORT))
        for name, entry in sockets.items()
    )
    return AMQP091_PORT if core_port == DEFAULT_PORT and not taken else 0


def _interfaces(values: Mapping[str, object], faults: list[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """Address that the node listens on and address that others connect to, by the name of the interface."""
    found: dict[str, tuple[str, str]] = {}
    for name, entry in _mapping(values, "interfaces").items():
        if not isinstance(entry, Mapping) or set(entry) - set(INTERFACE_KEYS) or not entry.get("bind_address"):
            problem = f"needs, for {name!r}, a mapping with bind_address and, if it differs, advertise_address"
            faults.append(("interfaces", problem))
            continue
        bind = str(entry["bind_address"])
        advertise = str(entry.get("advertise_address") or bind)
        if advertise in WILDCARDS:
            problem = f"has no address that others could connect to for {name!r}; set advertise_address"
            faults.append(("interfaces", problem))
            continue
        found[str(name)] = (bind, advertise)
    return found


def _sockets(values: Mapping[str, object], faults: list[tuple[str, str]]) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Name and entry of each socket whose entry has a usable form."""
    for name, entry in _mapping(values, "sockets").items():
        given = {} if entry is None else entry
        if not isinstance(given, Mapping):
            faults.append(("sockets", f"has for {name!r} a {type(given).__name__}; give a mapping"))
            continue
        unknown = ", ".join(sorted(repr(key) for key in set(given) - set(SOCKET_KEYS)))
        if unknown:
            faults.append(("sockets", f"has {unknown} for {name!r}; give only {', '.join(SOCKET_KEYS)}"))
            continue
        yield str(name), given


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else tuple(str(value).split(","))


def _parameters_of(socket: str, entry: Mapping[str, object], faults: list[tuple[str, str]]) -> Mapping[str, object]:
    """Parameters of the URL, with the protocols."""
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        faults.append(("sockets", f"has parameters for {socket!r} that are no mapping"))
        return {}
    protocols = entry.get("protocols")
    if not protocols:
        return parameters
    if "protocols" in parameters:
        faults.append(("sockets", f"has protocols for {socket!r} twice, once in its parameters; remove these"))
    return {"protocols": list(_texts(protocols)), **parameters}


def _sources(socket: str, entry: Mapping[str, object], faults: list[tuple[str, str]]) -> tuple[str, ...]:
    given = entry.get("sources")
    if given is None:
        return SOURCES
    found = _texts(given) if given else ()
    unknown = [each for each in found if each not in SOURCES]
    if unknown:
        problem = f"has the source {unknown[0]!r} for {socket!r}; give {' or '.join(SOURCES)}"
        faults.append(("sockets", problem))
    return tuple(each for each in found if each in SOURCES)


def _connectors(values: Mapping[str, object], prefix: str, faults: list[tuple[str, str]]) -> Iterator[Endpoint]:
    for index, entry in enumerate(_entries(values, "connectors")):
        number = entry.get("port", DEFAULT_PORT)
        if not _is_number(number) or not 1 <= int(str(number)) <= PORT_MAX:
            faults.append(("connectors", f"has the port {number!r} at [{index}]; give a port from 1 to {PORT_MAX}"))
            continue
        parameters = _parameters(entry, faults, "connectors", index)
        origin = f"{prefix}connectors[{index}]"
        yield Endpoint(str(entry.get("name")), str(entry.get("address")), int(str(number)), parameters, origin)


def _entries(values: Mapping[str, object], key: str) -> Sequence[Mapping[str, object]]:
    entries = values.get(key) or []
    if not isinstance(entries, list):
        raise TypeError(f"{key} must be a list, not {type(entries).__name__}")
    return entries


def _mapping(values: Mapping[str, object], key: str) -> Mapping[str, object]:
    found = values.get(key) or {}
    if not isinstance(found, Mapping):
        raise TypeError(f"{key} must be a mapping, not {type(found).__name__}")
    return found


def _parameters(
    entry: Mapping[str, object], faults: list[tuple[str, str]], variable: str, index: int
) -> Mapping[str, object]:
    parameters = entry.get("parameters") or {}
    if isinstance(parameters, Mapping):
        return parameters
    faults.append((variable, f"has parameters at [{index}] that are no mapping"))
    return {}


def _is_number(value: object) -> bool:
    text = str(value)
    return not isinstance(value, bool) and text.isascii() and text.isdigit()


def _repeated(endpoints: Sequence[Endpoint]) -> Iterator[str]:
    seen: set[str] = set()
    for endpoint in endpoints:
        if endpoint.name in seen:
            yield f"names {endpoint.name!r} twice"
        seen.add(endpoint.name)


def core_elements(sockets: Sockets, remote: Sequence[Endpoint] = ()) -> tuple[dict[str, object], dict[str, str]]:
    """The elements ``connectors`` and ``acceptors`` as structured YAML, and where each entry comes from.

    Args:
        sockets: Sockets of the node.
        remote: Connectors of other nodes.
    """
    connectors = [sockets.connector, *remote, *sockets.connectors]
    groups = {"connectors": ("connector", connectors), "acceptors": ("acceptor", list(sockets.acceptors))}
    elements: dict[str, object] = {}
    origins: dict[str, str] = {}
    for group, (name, endpoints) in groups.items():
        elements[group] = {name: [{"@name": each.name, "#text": each.url} for each in endpoints]}
        for index, each in enumerate(endpoints):
            origins[f"{group}.{name}[{index}]"] = each.origin
    return elements, origins
