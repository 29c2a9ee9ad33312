"""A connector from its name and URL, as management adds it and as the log keeps it."""

from __future__ import annotations

import re
from typing import Final

from understudy.config.model import ConnectorConfiguration
from understudy.config.password_codec import PasswordCodec
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError

#: A parameter of a URL that holds a password: the name, and the value.
_PASSWORD: Final = re.compile(r"([?&;]\w*[pP]assword=)([^&;#]*)")
_ESCAPED: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


def parse_connector(name: str, url: str, instance_directory: str) -> ConnectorConfiguration:
    """The connector, read as an element ``connector`` of broker.xml is.

    Args:
        name: Not empty.
        url: ``tcp://host:port`` with parameters.
        instance_directory: Relative paths of certificates start in its directory ``etc``.

    Raises:
        ValueError: the name or the URL cannot be used; the text says why.
    """
    if not name.strip():
        raise ValueError("a connector needs a name")
    element = f'<connector name="{name.translate(_ESCAPED)}">{url.translate(_ESCAPED)}</connector>'
    text = f"<configuration><core><connectors>{element}</connectors></core></configuration>"
    try:
        loaded = read_broker_xml(text.encode(), file=f"connector {name!r}", base_directory=instance_directory)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    if not loaded.configuration.connectors:
        # a connector inside the virtual machine of Java leads nowhere
        raise ValueError("; ".join(map(str, loaded.warnings)))
    (connector,) = loaded.configuration.connectors
    if connector.name != name:
        raise ValueError(f"connector {name!r}: the name has white space that XML does not keep")
    return connector


def mask_passwords(url: str) -> str:
    """The URL with its passwords as ``ENC(...)``, for the log."""

    def masked(found: re.Match[str]) -> str:
        name, value = found.groups()
        return found[0] if not value or value.startswith("ENC(") else f"{name}{PasswordCodec().mask(value)}"

    return _PASSWORD.sub(masked, url)
