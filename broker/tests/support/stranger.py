"""A stranger without the cluster password, who is dialled by a node and passes its frames on to an acceptor."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from understudy.errors import BrokerError
from understudy.wire.core import packets as p
from understudy.wire.core.codec import FrameDecoder, encode

CLUSTER_CHANNEL = 3
#: Types of the last packet of the accepting node in the proof, of this release and of earlier ones.
_PROVED = (p.ClusterConnectReply, p.ClusterAccept)
_ANSWER_S = 3.0


class Stranger:
    """Listens at a port; each connection is passed on to a node. Once the proof is over, the stranger asks the node for
    a session without a login, or for what a test gives, and keeps all answers.
    """

    def __init__(
        self,
        port: int,
        target: int,
        *,
        asks: p.Packet | None = None,
        channel_id: int = 1,
        change: Callable[[bytes], bytes] = bytes,
    ) -> None:
        """Args:
        port: Where it is dialled.
        target: Port of the node to which it passes the frames on.
        asks: Packet after the proof; None: it passes on everything, and asks for nothing.
        channel_id: Channel on which the packet is sent.
        change: Applied to bytes of the dialling node after the proof.
        """
        self._target = target
        self._asks = asks
        self._channel_id = channel_id
        self._change = change
        self.dialled = 0
        """Connections of nodes."""
        self.proved = 0
        """Proofs that the node accepted."""
        self.answers: list[p.Packet] = []
        self._listening = socket.create_server(("127.0.0.1", port))
        self._threads = [threading.Thread(target=self._listen, daemon=True)]
        self._threads[0].start()

    def end(self) -> None:
        self._listening.close()

    def _listen(self) -> None:
        while True:
            try:
                dialler, _ = self._listening.accept()
            except OSError:
                return
            self.dialled += 1
            threading.Thread(target=self._pass_on, args=(dialler,), daemon=True).start()

    def _pass_on(self, dialler: socket.socket) -> None:
        try:
            acceptor = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            dialler.close()
            return
        over = threading.Event()
        back = threading.Thread(target=self._pass_back, args=(acceptor, dialler, over), daemon=True)
        back.start()
        try:
            while data := dialler.recv(65536):
                acceptor.sendall(self._change(data) if over.is_set() else data)
        except OSError:
            pass
        if not over.is_set() or self._asks is None:
            _end(acceptor)

    def _pass_back(self, acceptor: socket.socket, dialler: socket.socket, over: threading.Event) -> None:
        """Pass on answers of the node up to the end of the proof, then speak for the dialling node. The stranger cannot
        read bytes of TLS, and passes them all on.
        """
        decoder = FrameDecoder("client")
        readable = True
        try:
            while data := acceptor.recv(65536):
                if readable and not over.is_set():
                    try:
                        frames = decoder.receive_data(data)
                    except BrokerError:
                        frames, readable = [], False
                    if any(isinstance(frame.packet, _PROVED) for frame in frames):
                        self.proved += 1
                        over.set()
                        if self._asks is not None:
                            self._ask(acceptor, decoder, dialler)
                            return
                dialler.sendall(data)
        except (OSError, BrokerError):
            pass
        finally:
            _end(acceptor)
            _end(dialler)

    def _ask(self, acceptor: socket.socket, decoder: FrameDecoder, dialler: socket.socket) -> None:
        assert self._asks is not None
        acceptor.settimeout(_ANSWER_S)
        acceptor.sendall(encode(self._asks, self._channel_id))
        while data := acceptor.recv(65536):
            self.answers += [frame.packet for frame in decoder.receive_data(data)]


def _end(connection: socket.socket) -> None:
    """End a connection at once, also while another thread waits for its bytes; otherwise the node at the other side
    would wait for an answer until its call times out.
    """
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
