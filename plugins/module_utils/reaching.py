# SPDX-License-Identifier: Apache-2.0
"""Words for a connection that cannot be established."""

from __future__ import annotations

import os
import socket


def why_silent(error: OSError, timeout_s: float) -> str:
    """The reason in words.

    Args:
        error: of the attempt.
        timeout_s: that was given for it.
    """
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved: {error.strerror}"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout_s:g} s"
    return os.strerror(error.errno) if error.errno else str(error)
