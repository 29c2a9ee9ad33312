"""Contexts: named pairs and nodes with their addresses and logins, in one file of the user (``understudy context``).

A context has ``nodes``, each with ``management`` (a URL) and ``token``, or with ``instance`` (a directory of this
host); ``broker``, ``user`` and ``password`` for clients; and ``ca``.

The file is ``understudy/contexts.json`` in the XDG configuration directory, with mode 0600 because it has secrets.
``UNDERSTUDY_CONTEXT`` names another context than the one in use. Options and other variables of the environment come
before the values of a context.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from understudy.errors import ConfigError
from understudy.texts import reason_of

#: Variable that names the context.
VARIABLE: Final = "UNDERSTUDY_CONTEXT"
_FILE_BYTES_MAX: Final = 1024 * 1024


def contexts_file(environment: Mapping[str, str]) -> Path:
    """The file of the contexts of a user."""
    given = Path(environment.get("XDG_CONFIG_HOME", ""))
    folder = given if given.is_absolute() else Path(environment.get("HOME", "/")) / ".config"
    return folder / "understudy" / "contexts.json"


def read_contexts(environment: Mapping[str, str]) -> dict[str, Any]:
    """``used`` (a name or None) and ``contexts`` by name. Raises ConfigError: the file cannot be read."""
    file = contexts_file(environment)
    try:
        with file.open(encoding="utf-8") as opened:
            found = json.loads(opened.read(_FILE_BYTES_MAX))
        return {"used": found["used"], "contexts": dict(found["contexts"])}
    except FileNotFoundError:
        return {"used": None, "contexts": {}}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(file)) from error


def write_contexts(environment: Mapping[str, str], found: Mapping[str, Any]) -> None:
    """Replace the file; only the user may read it. Raises ConfigError."""
    file = contexts_file(environment)
    temporary = file.with_suffix(".tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            json.dump(found, opened, indent=2)
        temporary.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(file)) from error


def current_context(environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The context in use; None: there is none. Raises ConfigError: there is none of the name."""
    found = read_contexts(environment)
    name = environment.get(VARIABLE) or found["used"]
    if name is None:
        return None
    if name not in found["contexts"]:
        raise ConfigError(f"there is no context {name!r}", hint="`understudy context list` shows them")
    return dict(found["contexts"][name])
