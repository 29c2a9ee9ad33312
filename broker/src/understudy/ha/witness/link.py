"""The client's side of one connection to a witness: the handshake, then frames of requests and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from understudy.errors import BrokerError, ClusterSecurityError
from understudy.ha.witness.frames import (
    NONCE_BYTES,
    VERSION_MAX,
    Answer,
    FrameReader,
    Frames,
    Hello,
    Request,
    Secret,
    check_welcome,
    decode_answer,
    encode_proof,
    frame,
    frame_limit,
)
from understudy.ports import Connection


class WitnessLinkOwner(Protocol):
    """Gets the events of a link."""

    def link_welcomed(self, link: WitnessLink) -> None:
        """Called when both sides have proved that they know the secret."""
        ...

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Called when an answer has come."""
        ...

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        ...


class LinkOptions(Protocol):
    """Secret and name of the client."""

    @property
    def secret(self) -> bytes:
        """Shared with the witness."""
        ...

    @property
    def name(self) -> str:
        """Name of the client."""
        ...


class WitnessLink:
    """One connection to a witness. Implements ``ha.witness.client.Link``."""

    def __init__(
        self,
        owner: WitnessLinkOwner,
        options: LinkOptions,
        identity: bytes | None,
        token: Callable[[int], bytes],
        address: str,
    ) -> None:
        """Begin without a connection.

        Args:
            owner: Gets the events.
            options: Secret and name.
            identity: That the witness must have; None: any.
            token: Makes the nonce.
            address: Address of the witness, for errors.
        """
        self._owner = owner
        self._options = options
        self._expected = identity
        self._token = token
        self.address = address
        self.identity = b""
        """Identity of the witness, once it has proved the secret."""
        self._secret = Secret(options.secret)
        self._reader = FrameReader()
        self._connection: Connection | None = None
        self._transcript: bytes | None = None
        self._frames: Frames | None = None
        self._closed = False

    def connected(self, connection: Connection) -> None:
        """The connection is established; the witness speaks first."""
        self._connection = connection
        if self._closed:
            connection.close()

    def receive_data(self, data: bytes) -> None:
        """Take received bytes."""
        self._reader.add(data)
        try:
            while not self._closed and (body := self._reader.next()) is not None:
                self._receive(body)
        except BrokerError as error:
            self._lose(f"{self.address}: {error}")

    def disconnected(self, reason: str) -> None:
        """Called when the connection has ended, or could not be established."""
        self._connection = None
        self._lose(f"{self.address}: {reason}")

    def send(self, request: Request) -> None:
        """Send a request, after ``link_welcomed``."""
        assert self._frames is not None
        if self._connection is not None:
            self._connection.send(self._frames.encode(request.encode()))

    def close(self) -> None:
        """Close the connection; the owner is not called any more."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _receive(self, body: bytes) -> None:
        assert self._connection is not None
        if self._frames is not None:
            self._owner.link_answered(self, decode_answer(self._frames.open(body)))
        elif self._transcript is None:
            hello = Hello.decode(body)
            if self._expected is not None and hello.identity != self._expected:
                raise ClusterSecurityError(
                    f"the witness has the id {hello.identity.hex()}, and {self._expected.hex()} is expected:"
                    " it is another witness, or has lost its state"
                )
            self.identity = hello.identity
            version = min(hello.version_max, VERSION_MAX)
            proof, self._transcript = encode_proof(
                self._secret, body, version, self._token(NONCE_BYTES), self._options.name
            )
            self._connection.send(frame(proof))
        else:
            check_welcome(self._secret, self._transcript, body)
            self._frames = self._secret.frames(self._transcript, client=True)
            self._reader.limit_bytes = frame_limit()
            self._owner.link_welcomed(self)

    def _lose(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._owner.link_lost(self, reason)
