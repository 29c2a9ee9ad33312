"""One connection at a witness: first the proof of the secret, then requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto

from understudy.errors import BrokerError, LimitExceeded
from understudy.ha.witness.frames import (
    NONCE_BYTES,
    VERSION_MAX,
    VERSION_MIN,
    Answer,
    FrameReader,
    Frames,
    Hello,
    Secret,
    check_proof,
    decode_request,
    encode_refusal,
    encode_welcome,
    frame,
    frame_limit,
)
from understudy.ha.witness.service import Witness
from understudy.limits import WITNESS_IDLE_MS, WITNESS_LOGIN_TIMEOUT_MS, WITNESS_REQUESTS_WAITING_MAX
from understudy.machine import IGNORED, Machine, To, table
from understudy.ports import Connection, Entropy, Timer, Timers

log = logging.getLogger(__name__)


class State(Enum):
    """States of a connection."""

    PROVING = auto()
    """The client has not proved the secret."""
    SERVING = auto()
    CLOSED = auto()


class Event(Enum):
    """Events of a connection."""

    PROVED = auto()
    """The client has proved that it knows the secret. Its argument is the transcript of the handshake."""
    REFUSED = auto()
    """The client does not know the secret, or breaks the protocol. Its argument is the error."""
    LOST = auto()


_S, _E = State, Event


class WitnessSession(Machine[State, Event]):
    """The witness's side of one connection."""

    STATES = State
    EVENTS = Event
    INITIAL = State.PROVING

    def __init__(
        self,
        witness: Witness,
        secret: Secret,
        connection: Connection,
        entropy: Entropy,
        timers: Timers,
        ended: Callable[[WitnessSession], None],
    ) -> None:
        """Begin by sending HELLO.

        Args:
            witness: Carries out the requests.
            secret: That the client must know.
            connection: To the client.
            ended: Called once when the connection is closed by this side or lost.
        """
        super().__init__()
        self._witness = witness
        self._secret = secret
        self._connection = connection
        self._timers = timers
        self._ended = ended
        self._reader = FrameReader()
        self._frames: Frames | None = None
        self._requests = 0
        """Requests that have no answer yet."""
        self.client = ""
        """Name that the client gave."""
        hello = Hello(VERSION_MIN, VERSION_MAX, witness.identity, entropy.token(NONCE_BYTES))
        self._hello = hello.encode()
        connection.send(frame(self._hello))
        self._timer: Timer | None = timers.call_later(WITNESS_LOGIN_TIMEOUT_MS, self._too_late)

    def receive_data(self, data: bytes) -> None:
        """Take received bytes."""
        self._reader.add(data)
        try:
            while self.state is not State.CLOSED and (body := self._reader.next()) is not None:
                self._receive(body)
        except BrokerError as error:
            self.fire(Event.REFUSED, error)

    def lost(self) -> None:
        """Called when the connection has ended."""
        self.fire(Event.LOST)

    def _receive(self, body: bytes) -> None:
        if self._frames is None:
            self.client, transcript = check_proof(self._secret, self._hello, body)
            self.fire(Event.PROVED, transcript)
            return
        request = decode_request(self._frames.open(body))
        self._watch(WITNESS_IDLE_MS)
        if self._requests >= WITNESS_REQUESTS_WAITING_MAX:
            raise LimitExceeded(f"{self._requests} requests without an answer")
        self._requests += 1
        self._witness.handle(request, self.client, self._answer)

    def _answer(self, answer: Answer) -> None:
        self._requests -= 1
        if self.state is State.SERVING and self._frames is not None:
            self._connection.send(self._frames.encode(answer.encode()))

    def _welcome(self, transcript: bytes) -> None:
        self._connection.send(frame(encode_welcome(self._secret, transcript)))
        self._frames = self._secret.frames(transcript, client=False)
        self._reader.limit_bytes = frame_limit()
        self._watch(WITNESS_IDLE_MS)
        log.info("client connected", extra={"client": self.client, "peer": self._connection.peer})

    def _watch(self, limit_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timers.call_later(limit_ms, self._too_late)

    def _too_late(self) -> None:
        self._timer = None
        self.fire(Event.REFUSED, LimitExceeded("no frame within the time limit"))

    def _refuse(self, error: BrokerError) -> None:
        log.warning("client refused", extra={"peer": self._connection.peer, "error": str(error)})
        if self._frames is None:
            self._connection.send(frame(encode_refusal(str(error))))
        self._connection.close()
        self._forget()

    def _end(self) -> None:
        if self._frames is not None:
            log.info("client disconnected", extra={"client": self.client, "peer": self._connection.peer})
        self._forget()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended(self)

    TABLE = table(
        State,
        Event,
        {
            (_S.PROVING, _E.PROVED): To(_S.SERVING, _welcome),
            (_S.PROVING, _E.REFUSED): To(_S.CLOSED, _refuse),
            (_S.PROVING, _E.LOST): To(_S.CLOSED, _end),
            (_S.SERVING, _E.REFUSED): To(_S.CLOSED, _refuse),
            (_S.SERVING, _E.LOST): To(_S.CLOSED, _end),
            # the proof is read once, before the codec of the session exists
            (_S.SERVING, _E.PROVED): IGNORED,
        },
        otherwise=dict.fromkeys(Event, IGNORED),
    )
