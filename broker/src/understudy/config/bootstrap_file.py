"""``bootstrap.xml`` of an Artemis instance: the realms of login.config that it uses, and its management addresses.

Nothing else of it means anything here. Source: Artemis manual, "Using the Server", *bootstrap configuration file*.
"""

from __future__ import annotations

from typing import Final

from understudy.config.logins.login_config import DEFAULT_REALM
from understudy.config.xml_tree import parse_xml
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import CONFIG_BYTES_MAX

_NAMESPACE: Final = "http://activemq.apache.org/schema"


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """The parts of a bootstrap.xml that have a counterpart here."""

    realms: tuple[str, ...] = (DEFAULT_REALM,)
    """Realms of login.config, that of clients with a certificate after that of the others."""
    security_manager: str | None = None
    """Java class in the place of the realms; None: there is none."""
    web_addresses: tuple[str, ...] = ()
    """URIs of the management console and API."""


def read_bootstrap(data: bytes, file: str) -> Bootstrap:
    """The contents of a bootstrap.xml.

    Args:
        data: Bytes of the file, at most ``CONFIG_BYTES_MAX``.
        file: Name of the file, for errors.

    Raises:
        ConfigError: it is too large, or no XML.
    """
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{len(data)} bytes, limit {CONFIG_BYTES_MAX}", file=file)
    realms, manager, addresses = [], None, []
    for each in parse_xml(data, file).everything():
        namespace, name = each.name
        if namespace not in ("", _NAMESPACE):
            continue
        if name == "jaas-security":
            domain = each.get("domain")
            found = (DEFAULT_REALM if domain is None else domain, each.get("certificate-domain"))
            realms += [realm for realm in found if realm]
        elif name == "security-manager":
            manager = each.get("class-name") or ""
        elif name in ("web", "binding"):
            uri = each.get("bind") if name == "web" else each.get("uri")
            addresses += [uri] if uri else []
    return Bootstrap(tuple(dict.fromkeys(realms)) or (DEFAULT_REALM,), manager, tuple(addresses))
