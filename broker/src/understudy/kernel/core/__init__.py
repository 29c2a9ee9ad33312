"""Functions that know CORE frames (docs/build/core-protocol.md), native or in Python as ``kernel`` has chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.kernel import ACTIVE

if TYPE_CHECKING or ACTIVE == "python":
    from understudy.kernel.core.forwarding import forward_messages
    from understudy.kernel.core.frames import (
        confirms,
        receives,
        run_receives,
        split_commits,
        split_confirms,
        split_sends,
    )
else:
    from understudy_kernel import (
        confirms,
        forward_messages,
        receives,
        run_receives,
        split_commits,
        split_confirms,
        split_sends,
    )

__all__ = [
    "confirms",
    "forward_messages",
    "receives",
    "run_receives",
    "split_commits",
    "split_confirms",
    "split_sends",
]
