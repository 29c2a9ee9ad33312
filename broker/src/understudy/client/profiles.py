"""Client URLs of connection factories by name, from a file that the broker makes (ADR 0192)."""

from __future__ import annotations

from pathlib import Path

from understudy.client.core.url.profiles import named_url
from understudy.errors import ConfigError

#: Largest file of properties that is read. Bytes.
PROFILES_BYTES_MAX = 1024 * 1024


def profile_url(file: str | Path, name: str) -> str:
    """The client URL of a connection factory in a file ``jndi.properties``, for ``connect()``.

    The broker makes the file of a connection factory (operation ``getJndiProperties``); clients of JMS read it too.

    Args:
        file: The file, in UTF-8.
        name: Name of the factory, such as ``jms/RemoteConnectionFactory``.

    Raises:
        ConfigError: the file cannot be read, or has no connection factory of this name; the message names the nearest.
    """
    try:
        with open(file, "rb") as opened:
            data = opened.read(PROFILES_BYTES_MAX + 1)
        if len(data) > PROFILES_BYTES_MAX:
            raise ConfigError(f"more than {PROFILES_BYTES_MAX} bytes", file=str(file))
        text = data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"cannot be read: {reason}", file=str(file)) from error
    return named_url(text, name, str(file))
