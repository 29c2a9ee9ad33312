"""Goal: whatever a broker answers, or does not, becomes one state; no answer is never taken for a good one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.management import (
    REFUSALS,
    Access,
    ManagementClient,
    NodeState,
    Reply,
    interpret,
)
from hypothesis import given
from hypothesis import strategies as st


def test_an_active_broker(management: Any) -> None:
    state = ManagementClient(management.url, "right").state()
    assert (state.reachable, state.ready, state.state, state.role) == (True, True, "active", "primary")
    assert management.asked == ["/health/ready", "/api/v1/node"]


def test_a_passive_broker_follows_once_it_has_caught_up(management: Any) -> None:
    management.state, management.following = "passive", {"caught_up": False, "lag_bytes": 5}
    assert not ManagementClient(management.url, "right").state().following
    management.following = {"caught_up": True, "lag_bytes": 0}
    assert ManagementClient(management.url, "right").state().following


def test_a_wrong_token_is_said_and_is_not_ready(management: Any) -> None:
    state = ManagementClient(management.url, "wrong").state()
    assert state.reachable
    assert not state.ready
    assert "401" in state.reason


def test_no_broker_answers() -> None:
    state = ManagementClient("http://127.0.0.1:1", "t").state()
    assert (state.reachable, state.ready, state.state) == (False, False, "unreachable")
    assert "127.0.0.1:1" in state.reason


def test_proxies_of_the_environment_are_not_used(management: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert ManagementClient(management.url, "right").state().ready
    state = ManagementClient("http://broker.invalid:8161", "right", Access(use_proxy=True)).state()
    assert not state.reachable
    assert "refused" in state.reason


def test_the_login_of_netrc_does_not_replace_the_token(
    management: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    assert ManagementClient(management.url, "right").state().ready


def test_a_redirect_is_not_followed_so_the_token_stays_here(management: Any) -> None:
    management.redirect = f"{management.url}/elsewhere"
    state = ManagementClient(management.url, "right").state()
    assert not state.ready
    assert "302" in state.reason
    assert "/elsewhere" not in management.asked


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for 127.0.0.1 with its key, signed by itself."""
    path = tmp_path / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key"), "-out", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + (tmp_path / "key").read_text())
    return path


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_https_checks_the_server_and_shows_a_client_certificate(management: Any, certificate: Path) -> None:
    management.use_tls(certificate)
    unchecked = ManagementClient(management.url, "right").state()
    assert not unchecked.reachable
    assert "certificate" in unchecked.reason.lower()
    known = Access(ca_path=str(certificate))
    assert not ManagementClient(management.url, "right", known).state().reachable
    both = Access(ca_path=str(certificate), client_cert=str(certificate))
    assert ManagementClient(management.url, "right", both).state().ready
    trusting = Access(validate_certs=False, client_cert=str(certificate))
    assert ManagementClient(management.url, "right", trusting).state().ready


def test_an_unknown_option_of_the_access_is_refused() -> None:
    assert Access.from_record({"ca_path": None, "timeout_s": 9}) == Access(timeout_s=9)
    with pytest.raises(TypeError, match="nonsense"):
        Access.from_record({"nonsense": 1})


@pytest.mark.parametrize("url", ["127.0.0.1:8161", "ftp://x", "http://", ""])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no management URL"):
        ManagementClient(url, "t")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
BODY = st.dictionaries(st.sampled_from(["ready", "state", "reason", "ha", "following", "peer", "x"]), JSON)


@given(health_status=st.sampled_from([0, 200, 404, 500, 503]), health=BODY, node_status=st.integers(0, 599), node=BODY)
def test_any_answers_give_a_state_and_only_good_ones_are_ready(
    health_status: int, health: dict[str, object], node_status: int, node: dict[str, object]
) -> None:
    state = interpret(Reply(health_status, health), Reply(node_status, node))
    if state.ready:
        assert (health_status, node_status, health["ready"]) == (200, 200, True)
    assert isinstance(state.following, bool)
    assert NodeState.from_dict(state.as_dict()) == state


def test_a_record_that_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match="node_info"):
        NodeState.from_dict({"state": "active"})


def test_the_refusals_that_end_a_gate_are_sentences_of_the_broker() -> None:
    source = Path(__file__).resolve().parents[4] / "broker/src/understudy/ha/witness"
    text = "".join(path.read_text() for path in source.glob("*.py"))
    for words in REFUSALS:
        assert words in text, words
