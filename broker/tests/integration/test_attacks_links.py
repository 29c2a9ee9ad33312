"""Goal: raw bytes at the acceptor of a running pair, with or without a recorded or genuine proof, get nothing that
belongs to the nodes of the cluster, and the pair goes on. A stranger who passes frames on is in
``test_relayed_proofs.py``.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from integration.test_relayed_proofs import require_logins
from support.processes import Node
from support.proxy import Proxy
from support.replicated import ReplicatedPair, logged, property_of, wait_until
from support.witnesses import WitnessProcess
from understudy.cluster.membership.credentials import INSTANCE_BYTES, NONCE_BYTES, ClusterCredentials, Handshake
from understudy.wire.core import packets as p
from understudy.wire.core.codec import MAGIC, FrameDecoder, encode
from understudy.wire.core.transport import TransportConfiguration
from understudy.wire.sealed import RUN_HEAD_BYTES, Opener, Sealer

CLUSTER, REPLICATION, CONTROL = 3, 2, 1
USER, PASSWORD = "cluster", "a-secret-of-this-test"
#: Only against a node that does not close the connection.
CLOSED_S = 60.0
#: Growth of the node's memory by all attacks together. KiB.
GROWTH_KIB_MAX = 24 * 1024
LEASE_MS = 2_000
OWN = TransportConfiguration("stranger", parameters={"host": "127.0.0.1", "port": "1"})
REGISTRATION = p.ReplicaRegistration(3, "stranger", None, False, OWN)
SESSION = p.CreateSession("of-the-stranger".ljust(40, "-"), 10, 136, None, None)
#: Answers that only another node of the cluster gets.
GIVEN = (p.ClusterAccept, p.ReplicaAnswer, p.BackupResponse, p.QuorumVoteReply, p.CreateSessionResponse)
#: Packets of a node, each of which needs the proof.
OF_A_NODE: Sequence[tuple[int, p.Packet]] = (
    (CONTROL, SESSION),
    (REPLICATION, REGISTRATION),
    (REPLICATION, p.ReplicationCopy(b"x" * 100)),
    (REPLICATION, p.ReplicationOperations(1, 0, False, b"x", False)),
    (REPLICATION, p.ReplicationProgress(1 << 40, 1 << 40)),
    (REPLICATION, p.ReplicationStopping(True)),
    (REPLICATION, p.ReplicationPromise(1, True, "")),
    (CLUSTER, p.NodeAnnounce("x" * 36, None, False, 1, OWN)),
    (CLUSTER, p.BackupRequest(1, node_id="x" * 36)),
    (CLUSTER, p.ScaleDownAnnouncement("x" * 36, "y" * 36)),
    (CLUSTER, p.DuplicateIds("q", (b"1",))),
    (CLUSTER, p.StoreMoved("x" * 36, 1, 1, "127.0.0.1:1", 1, 1, 1, b"")),
    (CLUSTER, p.ClusterNonce(bytes(NONCE_BYTES), True)),
    (CLUSTER, p.ClusterAccept(bytes(32))),
    (CLUSTER, p.ClusterConnect(USER, PASSWORD)),
)


class Random:
    """Implements ``ports.Entropy``."""

    def token(self, size: int) -> bytes:
        return os.urandom(size)


class Dialled:
    """A connection to a node, whose bytes a test makes."""

    def __init__(self, node: Node) -> None:
        self.credentials = ClusterCredentials(USER, PASSWORD, Random())
        self.place = f"127.0.0.1:{node.port}"
        self._socket = socket.create_connection(("127.0.0.1", node.port), CLOSED_S)
        self._decoder = FrameDecoder("client")
        self.sent = bytearray()
        self.received: list[p.Packet] = []
        self.handshake: Handshake | None = None
        self.send(MAGIC)

    def send(self, data: bytes) -> None:
        self.sent += data
        self._socket.sendall(data)

    def hello(self, **fields: object) -> p.ClusterHello:
        values = {"user": USER, "nonce": os.urandom(NONCE_BYTES), "instance": os.urandom(INSTANCE_BYTES)}
        return p.ClusterHello(**{**values, "place": self.place, "address": self.place, **fields})  # type: ignore[arg-type]

    def greet(self) -> Handshake:
        """Send a genuine first packet; proofs and keys of the connection."""
        hello = self.hello()
        self.send(encode(hello, CLUSTER))
        answer = self.next()
        assert isinstance(answer, p.ClusterNonce)
        self.handshake = self.credentials.handshake(hello, answer)
        return self.handshake

    def prove(self) -> Sealer:
        """Send a genuine proof as well; seals what follows."""
        handshake = self.greet()
        self.send(encode(p.ClusterProof(handshake.dialler_proof()), CLUSTER))
        accepted = self.next()
        assert isinstance(accepted, p.ClusterAccept)
        assert accepted.proof == handshake.acceptor_proof()
        self._decoder.open_with(Opener(handshake.acceptor_key(), self.place))
        return Sealer(handshake.dialler_key())

    def next(self) -> p.Packet:
        """The next packet of the node."""
        while not self.received:
            data = self._socket.recv(65536)
            assert data, "the node has closed the connection"
            self._decode(data)
        return self.received.pop(0)

    def until_closed(self) -> list[p.Packet]:
        """Packets until the node closes the connection."""
        try:
            while data := self._socket.recv(65536):
                self._decode(data)
        except ConnectionResetError:
            pass
        finally:
            self._socket.close()
        return self.received

    def _decode(self, data: bytes) -> None:
        self.received += [frame.packet for frame in self._decoder.receive_data(data)]


class Site:
    """A pair in sync."""

    def __init__(self, pair: ReplicatedPair) -> None:
        self.pair = pair
        self.node = pair.primary

    def resident_kib(self) -> int:
        assert self.node.process is not None
        status = Path(f"/proc/{self.node.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def assert_untouched(self) -> None:
        """The pair is in sync as before, and the log of its active node tells of no error of its own."""
        assert self.node.get("/health/ready")[1]["state"] == "active"
        assert logged(self.node, "replica lost") == 0
        assert logged(self.node, "Traceback") == 0
        assert logged(self.node, "replica registered") == 1


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    pair = ReplicatedPair(tmp_path_factory.mktemp("pair"))
    for node in pair.nodes:
        require_logins(node)
    try:
        yield Site(pair.start())
    finally:
        pair.end()


# --- without a proof -------------------------------------------------------------------------------


@pytest.mark.parametrize("greets", [False, True], ids=["at once", "after a hello"])
@pytest.mark.parametrize(("channel_id", "packet"), OF_A_NODE, ids=lambda each: type(each).__name__)
def test_a_packet_of_a_node_without_the_proof_gets_nothing(
    site: Site, channel_id: int, packet: p.Packet, greets: bool
) -> None:
    dialled = Dialled(site.node)
    if greets:
        dialled.greet()
    dialled.send(encode(packet, channel_id))
    if packet is SESSION:
        assert isinstance(dialled.next(), p.ExceptionResponse)
        dialled.send(b"\xff" * 64)
    answers = dialled.until_closed()
    assert not any(isinstance(each, GIVEN) for each in answers), answers
    site.assert_untouched()


def _cut(handshake: Handshake) -> list[bytes]:
    proof = handshake.dialler_proof()
    return [b"", proof[:1], proof[:-1], proof + b"\0", proof + proof, bytes([proof[0] ^ 1]) + proof[1:]]


def _of_the_other_side(handshake: Handshake) -> list[bytes]:
    return [handshake.acceptor_proof(), handshake.dialler_key(), handshake.acceptor_key()]


@pytest.mark.parametrize("wrong", [_cut, _of_the_other_side], ids=["cut or changed", "of another purpose"])
def test_a_wrong_proof_gets_nothing(site: Site, wrong: Callable[[Handshake], list[bytes]]) -> None:
    for number in range(len(wrong(Dialled(site.node).greet()))):
        dialled = Dialled(site.node)
        proof = wrong(dialled.greet())[number]
        dialled.send(encode(p.ClusterProof(proof), CLUSTER) + encode(REGISTRATION, REPLICATION))
        assert [type(each) for each in dialled.until_closed()] == [p.ExceptionResponse]
    site.assert_untouched()


def test_a_recorded_conversation_of_a_node_gets_nothing(site: Site) -> None:
    genuine = Dialled(site.node)
    sealer = genuine.prove()
    genuine.send(b"".join(map(bytes, sealer.seal([encode(p.BackupRequest(1, node_id="x" * 36), CLUSTER)]))))
    assert isinstance(genuine.next(), p.BackupResponse)
    again = Dialled(site.node)
    again.send(bytes(genuine.sent[len(MAGIC) :]))
    answers = again.until_closed()
    assert [type(each) for each in answers] == [p.ClusterNonce, p.ExceptionResponse]
    site.assert_untouched()


def _hello_head(length: int) -> bytes:
    """The begin of a ClusterHello that says how long it is."""
    return struct.pack(">ibq", length, p.ClusterHello.TYPE, CLUSTER)


@pytest.mark.parametrize(
    "data",
    [
        _hello_head(100 * 1024 * 1024),
        _hello_head(2**31 - 1),
        _hello_head(-1),
        _hello_head(0),
        # a string, and a value, that are said to be longer than their frame
        _hello_head(9 + 8) + struct.pack(">ii", 2**31 - 1, 0),
        _hello_head(9 + 4 + 2 + 4) + struct.pack(">iHi", 1, 0x61, 2**31 - 1),
    ],
)
def test_a_hello_of_an_impossible_length_is_refused_before_it_is_read(site: Site, data: bytes) -> None:
    before_kib = site.resident_kib()
    for _ in range(20):
        dialled = Dialled(site.node)
        dialled.send(data)
        assert not any(isinstance(each, p.ClusterNonce) for each in dialled.until_closed())
    assert site.resident_kib() - before_kib < GROWTH_KIB_MAX
    site.assert_untouched()


def test_strangers_who_greet_and_say_nothing_more_hold_up_no_node(site: Site) -> None:
    before_kib = site.resident_kib()
    silent = [Dialled(site.node) for _ in range(200)]
    for each in silent:
        each.greet()
    Dialled(site.node).prove()
    assert site.resident_kib() - before_kib < GROWTH_KIB_MAX
    for each in silent:
        each.send(encode(p.ClusterProof(bytes(32)), CLUSTER))
        each.until_closed()
    site.assert_untouched()


# --- bytes after a genuine proof --------------------------------------------------------------------

_ASKS = encode(p.BackupRequest(1, node_id="x" * 36), CLUSTER)


def _sealed(sealer: Sealer) -> bytes:
    return b"".join(map(bytes, sealer.seal([_ASKS])))


def _left_out(sealer: Sealer) -> bytes:
    _sealed(sealer)
    return _sealed(sealer)


def _in_another_order(sealer: Sealer) -> bytes:
    first, second = _sealed(sealer), _sealed(sealer)
    return second + first


def _changed(sealer: Sealer) -> bytes:
    run = bytearray(_sealed(sealer))
    run[-1] ^= 1
    return bytes(run)


def _of_another_connection(sealer: Sealer) -> bytes:
    return _sealed(Sealer(bytes(32)))


def _without_codes(sealer: Sealer) -> bytes:
    # more than the first one, read as a run, needs
    return 3 * _ASKS


def _length(length: int) -> Callable[[Sealer], bytes]:
    return lambda sealer: struct.pack(">I", length) + _sealed(sealer)[4:]


@pytest.mark.parametrize(
    "make",
    [_left_out, _in_another_order, _changed, _of_another_connection, _without_codes, _length(0), _length(2**32 - 1),
     _length(RUN_HEAD_BYTES)],
    ids=["left out", "in another order", "changed", "of another connection", "without codes", "length 0",
         "length 4 GiB", "another length"],
)  # fmt: skip
def test_wrong_runs_after_the_proof_end_the_connection(site: Site, make: Callable[[Sealer], bytes]) -> None:
    before = logged(site.node, "of the sealed connection")
    dialled = Dialled(site.node)
    dialled.send(make(dialled.prove()))
    assert not any(isinstance(each, GIVEN) for each in dialled.until_closed())
    wait_until(lambda: logged(site.node, "of the sealed connection") > before, site.node)
    site.assert_untouched()


def test_a_repeated_run_is_carried_out_once(site: Site) -> None:
    dialled = Dialled(site.node)
    run = _sealed(dialled.prove())
    dialled.send(run + run)
    answers = dialled.until_closed()
    assert [type(each) for each in answers].count(p.BackupResponse) <= 1
    site.assert_untouched()


# --- the lock manager ---------------------------------------------------------------------------------


class Replayed:
    """Listens in the place of a witness, and says to each client what that one had said to an earlier client."""

    def __init__(self, port: int, said: bytes) -> None:
        self._said = said
        self._listening = socket.create_server(("127.0.0.1", port))
        self._listening.settimeout(CLOSED_S)

    def answer(self) -> None:
        """Serve the next client until it closes the connection."""
        client, _ = self._listening.accept()
        client.settimeout(CLOSED_S)
        with client:
            try:
                client.sendall(self._said)
                while client.recv(65536):
                    pass
            except ConnectionResetError:
                pass

    def end(self) -> None:
        self._listening.close()


@pytest.fixture
def behind_a_proxy(tmp_path: Path) -> Iterator[tuple[ReplicatedPair, WitnessProcess, Proxy]]:
    """A pair in sync whose nodes reach their witness by a proxy that records everything."""
    witness = WitnessProcess(tmp_path)
    witness.start("--lease-max-ms", str(LEASE_MS))
    proxy = Proxy(witness.port, record=True)
    properties = (("addresses", f"127.0.0.1:{proxy.port}"), ("secret-file", witness.secret), ("lease-ms", LEASE_MS))
    values = "".join(property_of(key, value) for key, value in properties)
    manager = f"<class-name>witness</class-name><properties>{values}</properties>"
    pair = ReplicatedPair(tmp_path, manager=manager, connection_ttl_ms=3_000)
    try:
        yield pair.start(), witness, proxy
    finally:
        pair.end()
        witness.end(signal.SIGKILL)
        proxy.close()


def test_recorded_answers_of_a_witness_prove_no_lock(
    behind_a_proxy: tuple[ReplicatedPair, WitnessProcess, Proxy],
) -> None:
    pair, witness, proxy = behind_a_proxy
    holder = max(proxy.recordings, key=lambda each: len(each.to_client))
    assert len(holder.to_client) > 200, "a proof and answers"
    said, asked = bytes(holder.to_client), bytes(holder.to_server)
    # to the witness: what the holder of the lock had said
    with socket.create_connection(("127.0.0.1", witness.port), CLOSED_S) as stranger:
        stranger.sendall(asked)
        answer = b""
        try:
            while data := stranger.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    wait_until(lambda: "client refused" in witness.log.read_text())
    # to the nodes: what the witness had said
    proxy.stop_accepting()
    proxy.close()
    replayed = Replayed(proxy.port, said)
    try:
        for _ in range(4):
            replayed.answer()
    finally:
        replayed.end()
    # the promise of the replica stands in for the lock, and no recorded answer did
    assert pair.primary.get("/health/ready")[1]["state"] == "active"
    assert logged(pair.primary, "witness not connected") > 0
    assert logged(pair.backup, "activation") == 0
