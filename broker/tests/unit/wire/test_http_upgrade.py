"""Requests for an HTTP upgrade and their answers (artemis-core s. 1.4)."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from understudy.errors import LocalProtocolError, RemoteProtocolError
from understudy.wire.core.http_upgrade import (
    HEAD_BYTES_MAX,
    UpgradeExchange,
    UpgradeRefused,
    UpgradeRequest,
    accepted,
    read_request,
    refused,
    split_head,
)

KEY = "dGhlIHNhbXBsZSBub25jZQ=="


def head(*fields: str, line: str = "GET / HTTP/1.1", key: str = KEY) -> bytes:
    common = ("host: 127.0.0.1", "upgrade: activemq-remoting", "connection: upgrade")
    return "\r\n".join((line, *common, f"Sec-ActiveMQRemoting-Key: {key}", *fields, "", "")).encode()


def test_a_request_names_the_server_and_the_endpoint_or_neither() -> None:
    assert read_request(head()) == UpgradeRequest(KEY, None, None)
    named = head("activemqServerName: default", "httpUpgradeEndpoint: http-acceptor")
    assert read_request(named) == UpgradeRequest(KEY, "default", "http-acceptor")


def test_the_answer_has_the_digest_of_the_key() -> None:
    # by openssl: SHA-1 of the key and CF70DEB8-70F9-4FBA-8B4F-DFC3E723B4CD
    lines = accepted(UpgradeRequest(KEY, None, None)).decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert "Upgrade: activemq-remoting" in lines
    assert "Sec-ActiveMQRemoting-Accept: EAlhVKUpEU1S1v+cZDryAnMkQFw=" in lines
    assert lines[-2:] == ["", ""]


def test_a_head_may_come_in_pieces_with_the_next_protocol_after_it() -> None:
    whole = head()
    for cut in (1, 20, len(whole) - 1):
        assert split_head(whole[:cut]) is None
    assert split_head(whole + b"ARTEMIS") == (whole, b"ARTEMIS")


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (head(line="GET /"), HTTPStatus.BAD_REQUEST),
        (head(line="GET / HTTP/2"), HTTPStatus.BAD_REQUEST),
        (head(line="POST / HTTP/1.1"), HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", HTTPStatus.UPGRADE_REQUIRED),
        (head().replace(b"activemq-remoting", b"websocket", 1), HTTPStatus.UPGRADE_REQUIRED),
        (head(key="x"), HTTPStatus.BAD_REQUEST),
        (head(key="c2hvcnQ="), HTTPStatus.BAD_REQUEST),
        (head(key=""), HTTPStatus.BAD_REQUEST),
        (b"\xff\xfe\r\n\r\n", HTTPStatus.BAD_REQUEST),
    ],
)
def test_other_requests_are_refused_with_their_status(bad: bytes, status: HTTPStatus) -> None:
    with pytest.raises(UpgradeRefused) as caught:
        read_request(bad)
    assert caught.value.status is status
    answer = refused(caught.value)
    assert answer.startswith(f"HTTP/1.1 {status.value} ".encode())
    assert answer.partition(b"\r\n\r\n")[2].decode().strip() == str(caught.value)


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
def test_a_long_head_is_refused(end: bytes) -> None:
    with pytest.raises(UpgradeRefused) as caught:
        split_head(b"GET / HTTP/1.1\r\nx: " + b"y" * HEAD_BYTES_MAX + end)
    assert caught.value.status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


# --- the side of a client --------------------------------------------------------------------------------------


def exchange(**names: str) -> UpgradeExchange:
    return UpgradeExchange("::1", 8080, names, b"the sample nonce")


@pytest.mark.parametrize("cut", [0, 1, 40, 10_000])
def test_both_sides_agree(cut: int) -> None:
    client = exchange(activemqServerName="backup", httpUpgradeEndpoint="web")
    found = split_head(client.request)
    assert found is not None
    request = read_request(found[0])
    assert request == UpgradeRequest(KEY, "backup", "web")
    answer = accepted(request) + b"CORE"
    pieces = (answer[:cut], answer[cut:]) if 0 < cut < len(answer) else (answer,)
    assert [client.receive(each) for each in pieces][-1] == b"CORE"


def test_names_that_are_not_given_are_not_sent() -> None:
    assert b"activemqServerName" not in exchange(activemqServerName="").request
    assert b"Host: [::1]:8080" in exchange().request


@pytest.mark.parametrize("answer", [
    refused(UpgradeRefused(HTTPStatus.NOT_FOUND, "no server 'x' here")),
    accepted(UpgradeRequest("AAAAAAAAAAAAAAAAAAAAAA==", None, None)),
    b"ARTEMIS\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"x" * (HEAD_BYTES_MAX + 1),
])  # fmt: skip
def test_another_answer_is_an_error(answer: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        exchange().receive(answer)


def test_the_reason_of_a_refusal_is_quoted() -> None:
    answer = refused(UpgradeRefused(HTTPStatus.NOT_FOUND, "no server 'x' here"))
    with pytest.raises(RemoteProtocolError, match=r"404 Not Found.*no server 'x' here"):
        exchange().receive(answer)


@pytest.mark.parametrize("name", ["a\r\nEvil: 1", "\0", "caf\u00e9"])
def test_a_name_that_a_header_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError, match="activemqServerName"):
        exchange(activemqServerName=name)
