"""Errors tell remote clients no paths of the host; the log has the full text (docs/operate/security.md, class 12b)."""

from __future__ import annotations

import logging

import pytest

from support.core import CoreNode
from support.routing import text
from understudy.errors import (
    AddressFull,
    BrokerError,
    ConfigError,
    DiskFailed,
    DiskFull,
    JournalCorrupt,
    LargeMessageFailed,
    QueueNotFound,
    TransactionError,
)
from understudy.session.error_texts import TEXTS_MAX, ErrorTexts
from understudy.wire.core import packets as p

PATH = "/var/lib/understudy/journal"


def caused(error: BrokerError, cause: Exception) -> BrokerError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        DiskFull(f"{PATH}: no space for the next segment of the journal"),
        DiskFailed(f"{PATH}: input/output error"),
        JournalCorrupt("bad checksum", file=f"{PATH}/1.log", offset=5),
        ConfigError("cannot be read", file=f"{PATH}/users", line=3),
        LargeMessageFailed("its body is missing", file=f"{PATH}/7.large"),
        caused(AddressFull("address 'q' is full"), DiskFull(PATH)),
        caused(TransactionError(f"rolled back: {PATH}"), DiskFailed(PATH)),
        caused(BrokerError(f"cannot: {PATH}"), OSError(2, "No such file", PATH)),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_text_has_no_path_and_the_log_has_it(error: BrokerError, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        told = ErrorTexts().remote(error)
    assert "/" not in told
    assert "reference E1 " in told
    assert (record := caplog.records[0]).reference == "E1"  # type: ignore[attr-defined]
    assert PATH in record.error  # type: ignore[attr-defined]


def test_other_errors_are_reported_unchanged() -> None:
    assert ErrorTexts().remote(QueueNotFound("no queue 'a/b'")) == "no queue 'a/b'"
    assert ErrorTexts().remote(LargeMessageFailed("no piece came")) == "no piece came"


def test_a_repeated_error_is_logged_once_and_memory_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    texts = ErrorTexts()
    with caplog.at_level(logging.WARNING):
        first = [texts.remote(DiskFull(PATH)) for _ in range(5)]
        assert len(caplog.records) == 1
        assert len(set(first)) == 1
        for number in range(2 * TEXTS_MAX):
            texts.remote(DiskFull(f"{PATH}/{number}"))
    assert len(texts._references) == TEXTS_MAX


def test_a_full_disk_tells_a_producer_no_path() -> None:
    node = CoreNode()
    node.world.queue("q")
    client = node.client()
    client.create_session()

    def full(*_: object, **__: object) -> int:
        raise DiskFull(f"{PATH}: no space for a record of 100 bytes")

    node.store.store_message = full  # type: ignore[method-assign]
    answer = client.ask(p.SessionSend(text("x"), True, 5, 1), p.ExceptionResponse)
    assert PATH not in (answer.message or "")
    assert "reference E1" in (answer.message or "")
