"""Pure functions of the hot path, native or in Python (ADR 0034).

Every function exists twice: in the modules of this package, and under the same name in the compiled module
``understudy_kernel`` (distribution ``understudy-kernel``, sources in ``broker/kernel``). Both take the same arguments
and give the same results and errors; the tests in ``tests/property/test_kernel_twins*.py`` compare them. This module
is the only place that chooses between them, once, when it is imported:

- ``UNDERSTUDY_KERNEL=python`` or ``native`` in the environment forces one of the two;
- without it the native module is used if it can be imported and has the interface of this version.

``ACTIVE`` says which one was chosen and ``WHY`` the reason. Other packages import the functions from here, from
``kernel.log`` (records and runs of the log), ``kernel.core`` (CORE frames) and ``kernel.amqp091`` (frames of AMQP
0-9-1).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Final, Literal

from understudy.errors import ConfigError
from understudy.kernel.sends import DUPLICATE_SHIFT, DURABLE, PRIORITY_SHIFT

#: Version of the functions; ``INTERFACE`` in ``broker/kernel/src/lib.rs`` must be equal. It changes whenever the
#: arguments or the result of a function change.
INTERFACE: Final = 16
#: Environment variable that forces a kernel.
VARIABLE: Final = "UNDERSTUDY_KERNEL"
#: Functions that the native module must have.
FUNCTIONS: Final = (
    "Run",
    "Sends",
    "acknowledge_record",
    "append_duplicate_ids",
    "append_sends",
    "bare_run",
    "batch_thread",
    "confirms",
    "crc32",
    "crc32_combine",
    "digest_records",
    "find_record",
    "forward_messages",
    "join_runs",
    "keep_sends",
    "live_references",
    "moved_sends",
    "pack_references",
    "pick_sends",
    "plain_references",
    "read_run",
    "receives",
    "reference_blocks",
    "run_columns",
    "run_deliveries",
    "run_receives",
    "run_values",
    "scan",
    "sends_of",
    "skim_records",
    "split_commits",
    "split_confirms",
    "split_forwarded",
    "split_publishes",
    "split_sends",
    "unseen_bytes",
)

Kernel = Literal["python", "native"]

_MODULE: Final = "understudy_kernel"
_HINT: Final = "install it with pip install 'understudy[fast]', or unset the variable"


def load_native() -> ModuleType:
    """Import the native module.

    Raises:
        ImportError: It is not installed, cannot be loaded on this platform, or has another interface.
    """
    try:
        module = importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        raise ImportError(f"{_MODULE} is not installed") from error
    except ImportError as error:
        raise ImportError(f"{_MODULE} cannot be loaded: {error}") from error
    found = getattr(module, "INTERFACE", None)
    if found != INTERFACE:
        raise ImportError(f"{_MODULE} has interface {found}, this version of understudy needs {INTERFACE}")
    missing = [name for name in FUNCTIONS if not hasattr(module, name)]
    if missing:
        raise ImportError(f"{_MODULE} lacks {', '.join(missing)}: it was built from other sources")
    return module


def choose(wanted: str | None, load: Callable[[], ModuleType] = load_native) -> tuple[Kernel, str]:
    """The kernel to use and the reason, in words.

    Args:
        wanted: Value of ``UNDERSTUDY_KERNEL``; None or empty if it is not set.
        load: Returns the native module or raises ImportError.

    Raises:
        ConfigError: The variable has another value, or it forces a native module that cannot be used.
    """
    if wanted == "python":
        return "python", f"{VARIABLE}=python"
    if wanted not in (None, "", "native"):
        raise ConfigError(f"{VARIABLE}={wanted}: the value must be python or native")
    try:
        module = load()
    except ImportError as error:
        if wanted:
            raise ConfigError(f"{VARIABLE}=native, but {error}", hint=_HINT) from error
        return "python", str(error)
    return "native", f"{_MODULE} {module.__version__}"


_chosen = choose(os.environ.get(VARIABLE))
ACTIVE: Final[Kernel] = _chosen[0]
WHY: Final = _chosen[1]

if TYPE_CHECKING or ACTIVE == "python":
    from understudy.kernel.changes import moved_sends, pick_sends, split_forwarded
    from understudy.kernel.sends import Sends, sends_of
else:
    from understudy_kernel import (
        Sends,
        moved_sends,
        pick_sends,
        sends_of,
        split_forwarded,
    )

__all__ = [
    "ACTIVE",
    "DUPLICATE_SHIFT",
    "DURABLE",
    "FUNCTIONS",
    "INTERFACE",
    "PRIORITY_SHIFT",
    "VARIABLE",
    "WHY",
    "Kernel",
    "Sends",
    "choose",
    "load_native",
    "moved_sends",
    "pick_sends",
    "sends_of",
    "split_forwarded",
]
