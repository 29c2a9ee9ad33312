"""The table between error classes and CORE exception codes, both ways."""

from __future__ import annotations

import pytest

from understudy import errors
from understudy.wire.core.codes import ErrorCode, code_of, error_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.QueueNotFound("q"), 100),
        (errors.QueueExists("q"), 101),
        (errors.ObjectClosed("s"), 102),
        (errors.InvalidSelector("a ="), 103),
        (errors.QueueInUse("q"), 104),
        (errors.AuthenticationFailed("u"), 105),
        (errors.NotAuthorized("u"), 105),
        (errors.AddressNotFound("a"), 106),
        (errors.AddressExists("a"), 107),
        (errors.IncompatibleVersion("120"), 108),
        (errors.TransactionRolledBack("t"), 111),
        (errors.RollbackOnly("t"), 111),
        (errors.SessionRejected("starting"), 112),
        (errors.NotActive("passive", go_to="b"), 112),
        (errors.DuplicateIdRejected("d"), 113),
        (errors.DuplicateMetadata("jms-client-id"), 114),
        (errors.AddressFull("a"), 210),
        (errors.DiskFull("/data"), 210),
        (errors.ClusterSecurityError("u"), 212),
        (errors.MaxConsumersExceeded("q"), 214),
        (errors.UnexpectedRoutingType("a"), 0),  # as Artemis answers
        (errors.InvalidQueueConfiguration("q"), 216),
        (errors.AddressHasBindings("a"), 217),
        (errors.JournalCorrupt("bad", file="1.log", offset=4), 6),  # by its base
        (errors.LockLost("lease"), 6),
        (errors.ConfigError("x"), 0),
        (ValueError("a bug"), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_to_codes(error: BaseException, code: int) -> None:
    assert code_of(error) == code


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_makes_an_error_with_the_text_of_the_peer(code: ErrorCode) -> None:
    found = error_of(code, "AMQ229017: queue does not exist")
    assert isinstance(found, errors.BrokerError)
    assert str(found) == "AMQ229017: queue does not exist"
    assert str(error_of(code)) == code.name.lower().replace("_", " ")


@pytest.mark.parametrize("cls", errors.all_error_types())
def test_every_error_class_has_a_code(cls: type[errors.BrokerError]) -> None:
    assert code_of(cls.__new__(cls)) in ErrorCode


def test_errors_have_the_same_class_after_encoding_and_decoding() -> None:
    for cls in (
        errors.QueueNotFound,
        errors.QueueExists,
        errors.ObjectClosed,
        errors.InvalidSelector,
        errors.IllegalState,
        errors.AddressNotFound,
        errors.AddressExists,
        errors.IncompatibleVersion,
        errors.TransactionRolledBack,
        errors.SessionRejected,
        errors.DuplicateIdRejected,
        errors.DuplicateMetadata,
        errors.CommitOutcomeUnknown,
        errors.AddressFull,
        errors.ClusterSecurityError,
        errors.MaxConsumersExceeded,
        errors.InvalidQueueConfiguration,
        errors.AddressHasBindings,
        errors.UnsupportedPacket,
    ):
        assert type(error_of(code_of(cls("text")), "text")) is cls


def test_unknown_codes_are_kept() -> None:
    assert type(error_of(4711)) is errors.BrokerError
    assert "4711" in str(error_of(4711))
    assert str(error_of(4711, "text")) == "text"


def test_numbers_are_those_of_the_protocol() -> None:
    assert len(ErrorCode) == 51
    assert set(range(100, 121)) - set(ErrorCode) == {109}
    assert set(range(200, 224)) - set(ErrorCode) == {207}
