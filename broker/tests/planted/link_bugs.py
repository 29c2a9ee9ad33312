"""Planted bugs of links between nodes: checks of the proof and of sealed bytes that are left out (ADR 0111).

They need no simulated run: a stranger's attack of a few frames shows each of them (``test_planted_link_bugs``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from planted.planting import Patch
from understudy.cluster.membership import handshake
from understudy.cluster.membership.link_ends import OwnEnds
from understudy.wire import sealed


def _target_not_checked(patch: Patch) -> None:
    """A node takes a connection that is meant for another one."""
    patch.replace(OwnEnds, "refusal", lambda self, hello, local, node_id: "")


def _own_hello_accepted(patch: Patch) -> None:
    """A node takes a connection from itself."""
    patch.replace(handshake, "is_own", lambda hello, credentials: False)


def _code_not_checked(patch: Patch) -> None:
    """The code of a run of sealed bytes may be any."""
    patch.replace(sealed._Codes, "fits", lambda self, run, code, data: True)


def _number_not_checked(patch: Patch) -> None:
    """The code of a run does not cover its number."""
    patch.replace(sealed, "_number", lambda run: bytes(12))


#: The bugs by name.
LINK_BUGS: Final[dict[str, Callable[[Patch], None]]] = {
    "target-not-checked": _target_not_checked,
    "own-hello-accepted": _own_hello_accepted,
    "code-not-checked": _code_not_checked,
    "number-not-checked": _number_not_checked,
}


@contextmanager
def planted_link_bug(name: str | None) -> Iterator[None]:
    """While open, nodes of this process have the bug; None: no bug."""
    patch = Patch()
    try:
        if name is not None:
            LINK_BUGS[name](patch)
        yield
    finally:
        patch.restore()
