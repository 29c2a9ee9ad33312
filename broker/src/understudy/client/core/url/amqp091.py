"""URLs of AMQP 0-9-1: ``amqp091://user:password@host:port,host2:port/vhost?parameters``, with ``+tls`` for TLS.

They are read as the URL of CORE with the same hosts and parameters, and changed where the protocol differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote

from understudy.client.core.url.options import ClientUrl
from understudy.errors import ConfigError

SCHEMES: Final = ("amqp091", "amqp091+tls")
_PORT: Final = 5672
_PORT_OF_TLS: Final = 5671
#: Parameters whose values do nothing over this protocol: it has no credits of producers, and its sessions are resumed
#: without a window.
_WITHOUT_EFFECT: Final = ("confirmationWindowSize", "producerWindowSize", "minLargeMessageSize")
#: Fields of ``ClientOptions`` that the protocol cannot serve, by the parameter that sets them.
_NOT_SERVED: Final[Mapping[str, str]] = {
    "compressLargeMessage": "compress_large_message",
    "autoGroup": "auto_group",
    "groupID": "group_id",
}


class Rewritten(NamedTuple):
    """A URL of AMQP 0-9-1 as one of CORE."""

    url: str
    virtual_host: str


def rewritten(url: str, shown: str) -> Rewritten | None:
    """The URL of CORE with the same hosts and parameters; None: it is no URL of AMQP 0-9-1.

    Args:
        url: The whole URL.
        shown: URL as errors show it, without secrets.

    Raises:
        ConfigError: brackets, a second scheme or more than one virtual host.
    """
    scheme, separator, rest = url.lstrip("(").partition("://")
    if not separator or scheme not in SCHEMES:
        return None
    if url.startswith("(") or "://" in rest.partition("?")[0]:
        hint = "write amqp091://host:port,host2:port/vhost"
        raise ConfigError(f"client URL {shown!r}: all hosts of AMQP 0-9-1 follow one scheme", hint=hint)
    place, _, query = rest.partition("?")
    hosts, _, virtual_host = place.partition("/")
    if "/" in virtual_host:
        raise ConfigError(
            f"client URL {shown!r}: a virtual host with a slash", hint="write %2F for a slash in its name"
        )
    login, at, hosts = hosts.rpartition("@")
    secure = scheme.endswith("+tls")
    port = _PORT_OF_TLS if secure else _PORT
    parts = [f"tcp://{login}{at}{each if _has_port(each) else f'{each}:{port}'}" for each in hosts.split(",")]
    if secure:
        query = f"{query}&sslEnabled=true" if query else "sslEnabled=true"
    return Rewritten(f"({','.join(parts)})?{query}" if query else f"({','.join(parts)})", unquote(virtual_host) or "/")


def _has_port(place: str) -> bool:
    return ":" in place.rpartition("]")[2]


def adapted(url: ClientUrl, virtual_host: str, shown: str) -> ClientUrl:
    """The parsed URL with the options of the protocol.

    Args:
        url: The rewritten URL, parsed.
        virtual_host: Name of the virtual host.
        shown: URL as errors show it.

    Raises:
        ConfigError: an option that the protocol cannot serve.
    """
    for parameter, name in _NOT_SERVED.items():
        if getattr(url.options, name):
            hint = "use a URL of CORE (tcp://)"
            raise ConfigError(f"client URL {shown!r}: {parameter} is not possible over AMQP 0-9-1", hint=hint)
    if any(each.http_upgrade for each in url.connectors):
        raise ConfigError(f"client URL {shown!r}: httpUpgradeEnabled is not possible over AMQP 0-9-1")
    given = {each.lower() for each in shown.replace("?", "&").replace("=", "&").split("&")}
    ignored = tuple(each for each in _WITHOUT_EFFECT if each.lower() in given)
    options = replace(url.options, producer_window_size=-1, confirmation_window_size=-1)
    return replace(url, options=options, virtual_host=virtual_host, ignored=(*url.ignored, *ignored))
