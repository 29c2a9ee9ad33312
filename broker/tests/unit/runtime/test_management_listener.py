"""Goal: management listens at the configured address only, and at a public address only if that is configured."""

from __future__ import annotations

import pytest

from understudy.errors import ConfigError
from understudy.runtime.management.listener import ManagementListener, is_loopback

TOKEN = "a-token-of-some-length"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", "", "127.0.0.1.example.org"])
def test_only_loopback_unless_allowed(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="not loopback"):
        ManagementListener(host, 0, TOKEN)
    assert ManagementListener(host, 0, TOKEN, allow_remote=True).host == host


@pytest.mark.parametrize("token", ["short", "x" * 15, "ü" * 20, "x" * 20 + "\n"])
def test_weak_tokens_are_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        ManagementListener("127.0.0.1", 0, token)
    assert ManagementListener("127.0.0.1", 0, "").token == b""
