"""Simulated TCP: what plain protocols see, in good order and under every fault."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.network import Conditions, SimNetwork

PORT = 61616


class Recorder(asyncio.Protocol):
    """Records its events; optionally echoes."""

    def __init__(self, echo: bool = False) -> None:
        self.transport: asyncio.Transport
        self.echo = echo
        self.data = bytearray()
        self.calls: list[str] = []
        self.pieces: list[int] = []
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        assert "lost" not in self.calls
        self.data += data
        self.pieces.append(len(data))
        if self.echo:
            self.transport.write(data)

    def eof_received(self) -> bool | None:
        self.calls.append("eof")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.error = exc

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class World:
    """A server process on host ``s`` that keeps its protocols, and a client process on host ``c``."""

    def __init__(self, seed: int, *, echo: bool = False, conditions: Conditions | None = None) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop, conditions)
        self.echo = echo
        self.accepted: list[Recorder] = []
        self.server = self.start_server()
        self.client = self.loop.new_process("c")
        self.loop.run_until(deadline=0.001)

    def start_server(self) -> SimProcess:
        process = self.loop.new_process("s")
        self.network.power_on("s")
        process.create_task(self._serve())
        return process

    async def _serve(self) -> None:
        def factory() -> Recorder:
            self.accepted.append(Recorder(self.echo))
            return self.accepted[-1]

        await self.loop.create_server(factory, "0.0.0.0", PORT)

    def connect(self, timeout_s: float = 300.0) -> Recorder:
        """A connection of the client's process, made."""
        task = self.client.create_task(self.loop.create_connection(Recorder, "s", PORT))
        assert self.loop.run_until(task.done, deadline=self.loop.time() + timeout_s)
        return task.result()[1]

    def write(self, recorder: Recorder, data: bytes) -> None:
        process = recorder.transport.process  # type: ignore[attr-defined]
        process.call(recorder.transport.write, data)

    def run(self, seconds: float) -> None:
        self.loop.run_until(deadline=self.loop.time() + seconds)

    def close(self) -> None:
        assert self.loop.failures == []
        self.loop.close()


@pytest.fixture(params=range(6))
def world(request):
    world = World(request.param)
    yield world
    world.close()


def test_bytes_arrive_in_order_and_in_pieces(world):
    near = world.connect()
    world.network.conditions.split_chance = 0.9
    sent = bytes(range(256)) * 40
    for start in range(0, len(sent), 100):
        world.write(near, sent[start : start + 100])
    world.run(5)
    (far,) = world.accepted
    assert far.data == sent
    assert len(far.pieces) > 4


def test_names_of_the_ends(world):
    near, far = world.connect(), world.accepted[0]
    assert near.transport.get_extra_info("peername") == ("s", PORT)
    assert near.transport.get_extra_info("sockname") == far.transport.get_extra_info("peername")
    assert near.transport.get_extra_info("sockname")[0] == "c"
    assert near.transport.get_extra_info("socket") is None


def test_close_delivers_everything_then_an_end(world):
    near, far = world.connect(), world.accepted[0]
    sent = b"x" * 2_000_000
    world.write(near, sent)
    world.client.call(near.transport.close)
    world.run(30)
    assert (bytes(far.data), far.calls, far.error) == (sent, ["made", "eof", "lost"], None)
    assert near.calls[-1] == "lost"
    assert near.error is None


def test_half_close(world):
    near, far = world.connect(), world.accepted[0]
    far.eof_received = lambda: True  # type: ignore[method-assign]
    world.write(near, b"question")
    world.client.call(near.transport.write_eof)
    with pytest.raises(RuntimeError, match="after write_eof"):
        world.write(near, b"more")
    world.run(1)
    world.write(far, b"answer")
    world.server.call(far.transport.close)
    world.run(1)
    assert (far.data, near.data, near.calls) == (b"question", b"answer", ["made", "eof", "lost"])


def test_flow_control_stops_a_writer_whose_reader_pauses(world):
    near, far = world.connect(), world.accepted[0]
    world.server.call(far.transport.pause_reading)
    for _ in range(40):
        world.write(near, bytes(64 * 1024))
    assert near.calls == ["made", "pause"]
    size = near.transport.get_write_buffer_size()
    world.run(60)
    assert far.data == b""
    assert near.transport.get_write_buffer_size() == size > 64 * 1024
    world.server.call(far.transport.resume_reading)
    world.run(60)
    assert len(far.data) == 40 * 64 * 1024
    assert near.calls == ["made", "pause", "resume"]
    assert near.transport.get_write_buffer_size() == 0


def test_a_free_port_refuses_and_a_missing_host_times_out(world):
    async def attempt(host: str, port: int) -> None:
        await world.loop.create_connection(Recorder, host, port)

    for host, port, error in (("s", 1, ConnectionRefusedError), ("nowhere", 1, OSError)):
        task = world.client.create_task(attempt(host, port))
        world.run(1)
        assert isinstance(task.exception(), error)


def test_a_port_belongs_to_one_server_until_it_closes(world):
    async def listen() -> None:
        server = await world.loop.create_server(Recorder, "s", 7)
        with pytest.raises(OSError, match="in use"):
            await world.loop.create_server(Recorder, None, 7)
        with pytest.raises(OSError, match="cannot bind"):
            await world.loop.create_server(Recorder, "c", 8)
        assert server.sockets[0].getsockname() == ("s", 7)
        server.close()
        await server.wait_closed()
        again = await world.loop.create_server(Recorder, None, 7, start_serving=False)
        assert not again.is_serving()

    task = world.server.create_task(listen())
    world.run(1)
    task.result()


def test_a_killed_server_closes_its_connections_at_once(world):
    near, far = world.connect(), world.accepted[0]
    sent = b"y" * 5000
    world.write(far, sent)
    world.server.kill()
    world.run(1)
    assert near.calls[-1] == "lost"
    assert sent.startswith(near.data)
    assert far.calls == ["made"], "the dead hear nothing"
    with pytest.raises(ConnectionRefusedError):
        world.connect()


def test_a_server_without_power_is_silent_until_its_host_is_back(world):
    near = world.connect()
    idle = world.connect()
    world.network.power_off("s")
    assert not world.server.alive
    world.write(near, b"hello?")
    world.run(100)
    assert (near.calls, idle.calls) == (["made"], ["made"])
    world.start_server()
    world.run(5)
    assert near.calls == ["made", "lost"]
    assert isinstance(near.error, ConnectionResetError)
    assert idle.calls == ["made"], "half-open until it sends"
    world.write(idle, b"still there?")
    world.run(5)
    assert isinstance(idle.error, ConnectionResetError)
    world.connect(5)


def test_a_partition_delays_and_loses_nothing(world):
    near, far = world.connect(), world.accepted[0]
    world.network.part("c", "s")
    world.write(near, b"one ")
    world.write(far, b"uno ")
    world.run(60)
    assert (far.data, near.data) == (b"", b"")
    world.network.heal("c", "s")
    world.write(near, b"two")
    world.run(5)
    assert (far.data, near.data) == (b"one two", b"uno ")


def test_a_one_way_partition_lets_one_direction_through_until_its_window_is_full(world):
    near, far = world.connect(), world.accepted[0]
    world.network.part("c", "s", both_ways=False)
    world.write(near, b"lost for now")
    world.write(far, bytes(2_000_000))
    world.run(60)
    assert far.data == b""
    assert 0 < len(near.data) < 2_000_000
    world.network.heal()
    world.run(60)
    assert (bytes(far.data), len(near.data)) == (b"lost for now", 2_000_000)


def test_a_partition_that_lasts_times_the_writer_out(world):
    near, far = world.connect(), world.accepted[0]
    world.network.part("c", "s")
    world.write(near, b"hello?")
    world.run(1000)
    assert isinstance(near.error, TimeoutError)
    assert far.calls == ["made"]


def test_connecting_into_a_partition_waits_for_the_heal_or_times_out(world):
    world.network.part("c", "s", both_ways=False)
    task = world.client.create_task(world.loop.create_connection(Recorder, "s", PORT))
    world.run(10)
    assert not task.done()
    world.network.heal()
    world.run(20)
    assert task.done()
    world.network.part("c", "s")
    with pytest.raises(TimeoutError):
        world.connect()


def test_a_cancelled_attempt_leaves_no_trace(world):
    async def attempt() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(world.network.rng.uniform(0.0001, 0.003)):
                await world.loop.create_connection(Recorder, "s", PORT)

    for _ in range(50):
        world.client.create_task(attempt())
    world.run(5)
    world.client.kill()
    world.run(5)
    assert all(recorder.calls[-1] == "lost" for recorder in world.accepted)
    assert not world.network._pipes


def test_a_paused_server_answers_late(world):
    world.echo = True
    near = world.connect()
    world.server.pause()
    world.write(near, b"ping")
    late = world.connect()
    world.run(30)
    assert (near.data, late.calls) == (b"", ["made"])
    world.server.resume()
    world.write(late, b"pong")
    world.run(1)
    assert (near.data, late.data) == (b"ping", b"pong")


def test_a_write_to_a_closed_peer_is_reset(world):
    near, far = world.connect(), world.accepted[0]
    near.eof_received = lambda: True  # type: ignore[method-assign]
    world.server.call(far.transport.abort)
    world.run(1)
    world.write(near, b"anyone?")
    world.run(1)
    assert isinstance(near.error, ConnectionResetError)


def test_an_exception_in_a_protocol_ends_its_connection_and_is_a_failure():
    world = World(0)
    near, far = world.connect(), world.accepted[0]

    def bad(data: bytes) -> None:
        raise ValueError("bad bytes")

    far.data_received = bad  # type: ignore[method-assign]
    world.write(near, b"x")
    world.run(1)
    assert [failure.process for failure in world.loop.failures] == ["s.1"]
    assert (far.calls, near.calls[-1]) == (["made", "lost"], "lost")
    world.loop.failures.clear()
    world.close()


def test_streams_and_wait_for_work_on_it():
    loop = SimLoop(5)
    SimNetwork(loop)

    async def serve() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                writer.write(line.upper())
                await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "s", PORT)
        await server.serve_forever()

    async def ask() -> list[bytes]:
        reader, writer = await asyncio.open_connection("s", PORT)
        answers = []
        for word in (b"to\n", b"be\n"):
            writer.write(word)
            answers.append(await asyncio.wait_for(reader.readline(), 5))
        writer.close()
        await writer.wait_closed()
        return answers

    loop.new_process("s").create_task(serve())
    loop.run_until(deadline=0.001)
    task = loop.new_process("c").create_task(ask())
    assert loop.run_until(task.done, deadline=10)
    assert task.result() == [b"TO\n", b"BE\n"]
    assert loop.failures == []
    loop.close()


def test_equal_seeds_give_equal_traces_under_faults():
    def digest(seed: int) -> str:
        world = World(seed, echo=True)
        recorders = [world.connect() for _ in range(3)]
        schedule = world.loop.random("schedule")
        for _ in range(30):
            fault = schedule.choice(("part", "heal", "kill", "write", "write", "power"))
            if fault == "part":
                world.network.part("c", "s", both_ways=schedule.random() < 0.5)
            elif fault == "heal":
                world.network.heal()
            elif fault == "write":
                recorder, data = schedule.choice(recorders), bytes(schedule.randint(1, 100_000))
                if recorder.calls[-1] != "lost":
                    world.write(recorder, data)
            else:
                world.server.kill() if fault == "kill" else world.network.power_off("s")
                world.server = world.start_server()
            world.run(schedule.uniform(0, 5))
        result = world.loop.trace.digest()
        world.close()
        return result

    assert [digest(seed) for seed in range(5)] == [digest(seed) for seed in range(5)]
    assert len({digest(seed) for seed in range(5)}) == 5
