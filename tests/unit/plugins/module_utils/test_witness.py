"""Goal: a host learns before a deployment whether a witness answers, has the same secret and grants locks.

Method: a server on loopback that speaks with the frames of the broker's own witness (``understudy.ha.witness.frames``).
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.witness import Seen, ask, place_of, usable
from ansible_collections.understudy.broker.plugins.modules import lock_manager_info
from understudy.errors import BrokerError
from understudy.ha.witness import frames as witness_frames
from understudy.ha.witness.frames import Answer, Hello, Kind, Secret, decode_request, frame

SECRET = b"a-secret-of-a-test-0123456789"
IDENTITY = bytes(range(16))
Place = tuple[str, int]


class Witness:
    """One address; serves any number of connections, one after the other."""

    def __init__(self, **state: object) -> None:
        self.state = {"version": "0.1.0", "identity": IDENTITY.hex(), "configuration": 0, **state}
        self.hello = Hello(1, 1, IDENTITY, bytes(32))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.place: Place = ("127.0.0.1", self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _address = self.listener.accept()
                with connection, suppress(OSError, IndexError, BrokerError):
                    self.greet(connection)

    def greet(self, connection: socket.socket) -> None:
        secret, hello, reader = Secret(SECRET), self.hello.encode(), witness_frames.FrameReader()
        connection.sendall(frame(hello))

        def receive() -> bytes:
            while (body := reader.next()) is None:
                data = connection.recv(4096)
                if not data:
                    raise ConnectionResetError
                reader.add(data)
            return body

        try:
            _name, transcript = witness_frames.check_proof(secret, hello, receive())
        except BrokerError as error:
            connection.sendall(frame(witness_frames.encode_refusal(str(error))))
            return
        connection.sendall(frame(witness_frames.encode_welcome(secret, transcript)))
        frames = secret.frames(transcript, client=False)
        reader.limit_bytes = witness_frames.frame_limit()
        request = decode_request(frames.open(receive()))
        assert request.kind is Kind.STATUS
        connection.sendall(frames.encode(Answer(Kind.TEXT, request.number, text=json.dumps(self.state)).encode()))

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


@pytest.fixture
def witness() -> Iterator[Callable[..., Witness]]:
    """Makes witnesses."""
    made: list[Witness] = []

    def make(**state: object) -> Witness:
        made.append(Witness(**state))
        return made[-1]

    yield make
    for each in made:
        each.close()


def asked(place: Place, secret: bytes = SECRET, identity: str = "", *, of_group: bool = False) -> Seen:
    return ask(place, secret, identity, of_group=of_group, timeout_s=5.0)


def test_a_witness_with_the_same_secret_answers(witness: Callable[..., Witness]) -> None:
    place = witness().place
    seen = asked(place, identity=IDENTITY.hex().upper())
    assert seen == Seen(f"127.0.0.1:{place[1]}", True, identity=IDENTITY.hex(), version="0.1.0")


def test_another_secret_is_refused_with_the_reason_of_the_witness(witness: Callable[..., Witness]) -> None:
    seen = asked(witness().place, b"another-secret-of-a-test-0123456")
    assert not seen.answers
    assert seen.refused == "the client does not know the secret of the witness"


def test_another_identity_is_refused_before_the_secret_is_proved(witness: Callable[..., Witness]) -> None:
    assert "it is another witness, or has lost its state" in asked(witness().place, identity="ff" * 16).refused


def test_a_protocol_without_a_common_version_is_refused(witness: Callable[..., Witness]) -> None:
    made = witness()
    made.hello = replace(made.hello, version_min=7, version_max=9)
    assert "versions 7 to 9" in asked(made.place).refused


@pytest.mark.parametrize(
    ("configuration", "of_group", "said"),
    [(0, True, "run the playbook witness"), (3, False, "name all of them as 'members'"), (3, True, ""), (0, False, "")],
)
def test_a_member_of_a_group_is_named_as_one(
    witness: Callable[..., Witness], configuration: int, of_group: bool, said: str
) -> None:
    seen = asked(witness(configuration=configuration).place, of_group=of_group)
    assert seen.answers is (not said)
    assert said in seen.refused


def test_a_port_where_nothing_listens_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
    assert asked(place).silent == "Connection refused"


def test_another_service_is_no_witness() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _address = listener.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n" * 10)

        thread = threading.Thread(target=greet)
        thread.start()
        assert "no witness" in asked(listener.getsockname()).refused
        thread.join()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.3:61000", ("10.0.0.3", 61000)),
        ("10.0.0.3", ("10.0.0.3", 61619)),
        (" [fd00::3]:61000 ", ("fd00::3", 61000)),
        ("[fd00::3]", ("fd00::3", 61619)),
    ],
)
def test_places_are_written_as_in_the_configuration_of_the_broker(text: str, place: Place) -> None:
    assert place_of(text, 61619) == place


@pytest.mark.parametrize("text", ["", ":61619", "host:", "host:0", "host:port"])
def test_other_texts_are_no_places(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        place_of(text, 61619)


def test_a_majority_of_a_group_is_enough_and_one_address_of_a_single_witness() -> None:
    good, lost = Seen("a", answers=True), Seen("b", silent="gone")
    assert usable([good, good, lost], of_group=True)
    assert not usable([good, lost, lost], of_group=True)
    assert usable([lost, good], of_group=False)
    assert not usable([lost], of_group=False)


def test_the_module_names_what_is_refused_and_what_is_silent(
    witness: Callable[..., Witness], run_module: Callable[..., Any]
) -> None:
    places = ["{}:{}".format(*witness(configuration=1).place) for _number in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        gone = "{}:{}".format(*listener.getsockname())
    properties = {"members": f"witness://{','.join([*places, gone])}"}
    found = run_module(lock_manager_info, manager="witness", properties=properties, secret=SECRET.decode())
    assert found["usable"]
    assert found["refused"] == []
    assert found["silent"] == [f"{gone}: Connection refused"]
    wrong = run_module(lock_manager_info, manager="witness", properties=properties, secret="x" * 30)
    assert not wrong["usable"]
    assert [each.partition(": ")[2] for each in wrong["refused"]] == [
        "the client does not know the secret of the witness"
    ] * 2
    assert "x" * 30 not in json.dumps(wrong["refused"])


def test_the_module_reads_the_secret_of_a_host(
    witness: Callable[..., Witness], run_module: Callable[..., Any], tmp_path: Any
) -> None:
    (tmp_path / "secret").write_bytes(SECRET + b"\n")
    properties = {"addresses": "{}:{}".format(*witness().place), "secret-file": str(tmp_path / "secret")}
    assert run_module(lock_manager_info, manager="witness", properties=properties)["usable"]
    (tmp_path / "secret").unlink()
    assert "secret" in run_module(lock_manager_info, manager="witness", properties=properties)["msg"]


def test_the_module_tries_the_servers_of_zookeeper_and_looks_for_a_directory(
    run_module: Callable[..., Any], tmp_path: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        places = ",".join("{}:{}".format(*each.getsockname()) for each in (one, other))
        string = {"connect-string": f"{places},127.0.0.1:1/understudy"}
        found = run_module(lock_manager_info, manager="zookeeper", properties=string)
    assert found["usable"]
    assert found["silent"] == ["127.0.0.1:1: Connection refused"]
    assert run_module(lock_manager_info, manager="file", properties={"locks-folder": str(tmp_path)})["usable"]
    absent = {"locks-folder": str(tmp_path / "absent")}
    assert not run_module(lock_manager_info, manager="file", properties=absent)["usable"]
