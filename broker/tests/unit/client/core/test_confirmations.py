"""The confirmation window (artemis-core s. 7.1)."""

from __future__ import annotations

from understudy.client.core.session.confirmations import Confirmations


def kept(window: Confirmations) -> list[bytes]:
    return list(window.replay(-1))


def test_off_without_a_window() -> None:
    assert not Confirmations(-1).enabled
    assert Confirmations(0).enabled


def test_confirmed_commands_are_dropped() -> None:
    window = Confirmations(100)
    for frame in (b"0", b"1", b"2", b"3"):
        window.sent(frame)
    window.confirmed(1)
    assert len(window) == 2
    window.confirmed(1)
    assert window.replay(2) == (b"3",)
    window.confirmed(99)
    assert len(window) == 0


def test_a_server_that_counts_more_than_was_sent_is_followed() -> None:
    """Otherwise every later reattachment would drop packets that the broker has not received."""
    window = Confirmations(100)
    for frame in (b"0", b"1"):
        window.sent(frame)
    assert window.replay(3) == (), "it counted both twice"
    window.sent(b"4")
    window.sent(b"5")
    assert window.replay(4) == (b"5",), "it got one of them"


def test_ids_run_over_the_end_of_their_field() -> None:
    window = Confirmations(100)
    window._first, window._received = 2**31 - 1, 2**31 - 2
    window.sent(b"last")
    window.sent(b"first")
    assert not window.received(1)
    assert not window.received(1)
    assert window.last_received == -(2**31)
    assert window.replay(2**31 - 1) == (b"first",)
    assert window.replay(-(2**31)) == ()


def test_received_commands_are_confirmed_at_the_window() -> None:
    window = Confirmations(100)
    assert window.last_received == -1
    assert window.confirm() is None
    assert not window.received(60)
    assert window.received(40)
    assert window.confirm() == 1
    assert window.confirm() is None
    assert not window.received(99)
    assert window.confirm() == 2, "also before the window is full"


def test_a_new_session_counts_from_the_start() -> None:
    window = Confirmations(100)
    window.sent(b"0")
    window.received(1)
    window.reset()
    assert window.last_received == -1
    window.sent(b"new")
    assert window.replay(-1) == (b"new",)
    assert window.replay(0) == ()
