"""The HTTP upgrade by which a client asks an endpoint for a CORE connection, both sides. No I/O.

The request names the server that is meant (``activemqServerName``; none: the one that owns the endpoint) and the
endpoint (``httpUpgradeEndpoint``). After the answer 101 both sides speak CORE, with its magic.

Source: artemis-core s. 1.4; RFC 9110 s. 7.8 (Upgrade) for the refusals.
"""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, LocalProtocolError, RemoteProtocolError

#: Largest head of a request. Bytes.
HEAD_BYTES_MAX: Final = 8 * 1024
_END: Final = b"\r\n\r\n"
_PROTOCOL: Final = "activemq-remoting"
_GUID: Final = "CF70DEB8-70F9-4FBA-8B4F-DFC3E723B4CD"
_KEY_BYTES: Final = 16
#: Text of a refusal that is quoted. Bytes.
_REASON_BYTES_MAX: Final = 200


class UpgradeRefused(BrokerError):
    """The request is not answered with 101."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        """Args:
        text: Body of the answer, and the text of the error.
        """
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class UpgradeRequest:
    """A request for a CORE connection."""

    key: str
    server: str | None
    """Name of the server that is meant; None: the one that owns the endpoint."""
    endpoint: str | None
    """Name of the acceptor; None: any."""


def split_head(data: bytes) -> tuple[bytes, bytes] | None:
    """The head of the request and the bytes after it; None: it is not complete.

    Raises:
        UpgradeRefused: it is too long.
    """
    head, end, rest = data.partition(_END)
    if len(head) > HEAD_BYTES_MAX:
        raise UpgradeRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a head of more than {HEAD_BYTES_MAX} bytes")
    return (head + end, rest) if end else None


def read_request(head: bytes) -> UpgradeRequest:
    """Read a complete head.

    Raises:
        UpgradeRefused: it is no request for a CORE connection.
    """
    line, _, fields = head.partition(b"\r\n")
    parts = line.split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, "no request of HTTP/1.1")
    if parts[0] != b"GET":
        raise UpgradeRefused(HTTPStatus.METHOD_NOT_ALLOWED, "an upgrade is a GET request")
    found = _fields(fields)
    if found.get("upgrade", "").lower() != _PROTOCOL or "upgrade" not in found.get("connection", "").lower():
        raise UpgradeRefused(HTTPStatus.UPGRADE_REQUIRED, f"this endpoint serves upgrades to {_PROTOCOL} only")
    key = found.get("sec-activemqremoting-key", "")
    try:
        valid = len(b64decode(key, validate=True)) == _KEY_BYTES
    except (binascii.Error, ValueError):
        valid = False
    if not valid:
        raise UpgradeRefused(HTTPStatus.BAD_REQUEST, f"Sec-ActiveMQRemoting-Key is not {_KEY_BYTES} bytes in base64")
    return UpgradeRequest(key, found.get("activemqservername") or None, found.get("httpupgradeendpoint") or None)


def _fields(lines: bytes) -> dict[str, str]:
    """Header fields by their names in lower case; of several with one name the first."""
    found: dict[str, str] = {}
    for line in lines.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.decode("latin-1").strip().lower(), value.decode("latin-1").strip())
    return found


def _accept_of(key: str) -> str:
    digest = hashlib.sha1(f"{key}{_GUID}".encode(), usedforsecurity=False).digest()
    return b64encode(digest).decode()


def accepted(request: UpgradeRequest) -> bytes:
    """The answer 101, after which CORE begins."""
    lines = [
        f"HTTP/1.1 {HTTPStatus.SWITCHING_PROTOCOLS.value} {HTTPStatus.SWITCHING_PROTOCOLS.phrase}",
        f"Upgrade: {_PROTOCOL}",
        "Connection: Upgrade",
        f"Sec-ActiveMQRemoting-Accept: {_accept_of(request.key)}",
    ]
    return "\r\n".join(lines).encode() + _END


def refused(error: UpgradeRefused) -> bytes:
    """The answer to a request that is no upgrade; the connection is closed after it."""
    body = f"{error}\n".encode()
    lines = [
        f"HTTP/1.1 {error.status.value} {error.status.phrase}",
        "Connection: close",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
    ]
    if error.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET")
    if error.status is HTTPStatus.UPGRADE_REQUIRED:
        lines.append(f"Upgrade: {_PROTOCOL}")
    return "\r\n".join(lines).encode() + _END + body


class UpgradeExchange:
    """The side of a client: its request, and the answer, which may come in pieces."""

    def __init__(self, host: str, port: int, parameters: Mapping[str, object], token: bytes) -> None:
        """Args:
        parameters: Parameters of the connector; ``activemqServerName`` and ``httpUpgradeEndpoint`` are used.
        token: 16 random bytes.

        Raises:
            LocalProtocolError: a name has characters that a header cannot have.
        """
        self._key = b64encode(token).decode()
        self._data = b""
        place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        lines = [
            "GET / HTTP/1.1",
            f"Host: {place}",
            f"Upgrade: {_PROTOCOL}",
            "Connection: Upgrade",
            f"Sec-ActiveMQRemoting-Key: {self._key}",
        ]
        for name in ("activemqServerName", "httpUpgradeEndpoint"):
            value = str(parameters.get(name) or "")
            if not (value.isascii() and value.isprintable()):
                raise LocalProtocolError(f"connector parameter {name}: {value!r} cannot be sent in a request")
            if value:
                lines.append(f"{name}: {value}")
        self.request = "\r\n".join(lines).encode() + _END
        """To be sent first."""

    def receive(self, data: bytes) -> bytes | None:
        """Take bytes of the server. The bytes after its answer; None: the answer is not complete.

        Raises:
            RemoteProtocolError: the server refuses the upgrade, or does not answer as one that accepts it.
        """
        self._data += data
        head, end, rest = self._data.partition(_END)
        if len(head) > HEAD_BYTES_MAX:
            raise RemoteProtocolError(f"the answer to an HTTP upgrade has a head of more than {HEAD_BYTES_MAX} bytes")
        if not end:
            return None
        line, _, fields = head.partition(b"\r\n")
        status = line.split(b" ", 2)
        if len(status) < 2 or not status[0].startswith(b"HTTP/1."):
            raise RemoteProtocolError("the server does not answer an HTTP upgrade with HTTP")
        if status[1] != str(HTTPStatus.SWITCHING_PROTOCOLS.value).encode():
            reason = rest[:_REASON_BYTES_MAX].decode("utf-8", "replace").strip()
            said = line.decode("latin-1")[:_REASON_BYTES_MAX]
            raise RemoteProtocolError(f"the HTTP upgrade was refused: {said!r}" + (f", {reason}" if reason else ""))
        if _fields(fields).get("sec-activemqremoting-accept") != _accept_of(self._key):
            raise RemoteProtocolError("the answer to an HTTP upgrade does not fit the request")
        return rest
