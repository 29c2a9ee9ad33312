"""Default values of options. Imports no module that is slow to load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from understudy.errors import ConfigError

#: Default of ``--url``: the acceptor of a default instance.
DEFAULT_URL: Final = "tcp://127.0.0.1:61616"
#: Default address of the option ``--http``.
DEFAULT_HTTP: Final = "127.0.0.1:8161"


def default_directory(environment: Mapping[str, str]) -> Path:
    """The instance of ``understudy run`` without arguments: ``understudy`` in the XDG state directory.

    Raises:
        ConfigError: neither XDG_STATE_HOME nor HOME is an absolute path.
    """
    state = Path(environment.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        # the XDG base directory specification: a relative path is ignored
        home = Path(environment.get("HOME", ""))
        if not home.is_absolute():
            raise ConfigError("neither XDG_STATE_HOME nor HOME is an absolute path", hint="give --data DIR")
        state = home / ".local" / "state"
    return state / "understudy"
