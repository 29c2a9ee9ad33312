"""The seeded loop: virtual time, reproducible order, processes that die without effects."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from understudy.testing.sim.loop import Death, ProcessKilled, SimLoop, SimulationStuck

HOUR_S = 3600.0


def run(seed: int, main, **options):
    """Run a coroutine function on a fresh loop; its result and the loop."""
    loop = SimLoop(seed, **options)
    try:
        return loop.run_until_complete(main()), loop
    finally:
        loop.close()


async def busy_hour() -> list[int]:
    """Queues, timeouts, a task group that aborts 100 tasks (a set!), and sleeps: an hour's worth."""
    order: list[int] = []
    queue: asyncio.Queue[int] = asyncio.Queue(3)

    async def sleeper(number: int) -> None:
        try:
            await asyncio.sleep(10 * HOUR_S)
        finally:
            order.append(number)

    async def failing() -> None:
        await asyncio.sleep(1)
        raise ValueError("abort the group")

    async def producer(start: int) -> None:
        for number in range(start, start + 20):
            await queue.put(number)
            await asyncio.sleep(0)

    async def consumer() -> None:
        while len(order) < 161:
            order.append(await queue.get())

    async def abort() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(100):
                    group.create_task(sleeper(number))
                group.create_task(failing())
        except* ValueError:
            order.append(-1)

    # a task of its own: up to Python 3.11.3 a failed group leaves its task marked as cancelled
    await asyncio.create_task(abort())
    async with asyncio.TaskGroup() as group:
        for start in (1000, 2000, 3000):
            group.create_task(producer(start))
        group.create_task(consumer())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HOUR_S):
            await asyncio.get_running_loop().create_future()
    return order


def test_virtual_time_passes_without_waiting():
    async def main() -> float:
        await asyncio.sleep(1000 * HOUR_S)
        return asyncio.get_running_loop().time()

    assert run(0, main)[0] == 1000 * HOUR_S


def test_equal_seeds_give_equal_orders_and_hashes_and_others_differ():
    first, one = run(7, busy_hour)
    second, two = run(7, busy_hour)
    third, three = run(8, busy_hour)
    assert first == second
    assert one.trace.digest() == two.trace.digest()
    assert first != third
    assert sorted(first) == sorted(third)
    assert one.trace.digest() != three.trace.digest()


def test_equal_seeds_give_equal_hashes_in_two_processes():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_sim_loop as t;"
        "print(t.run(7, t.busy_hour)[1].trace.digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", script, __file__.rpartition("/")[0]],
            env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert digests == {run(7, busy_hour)[1].trace.digest() + "\n"}


def test_callbacks_of_one_strand_keep_their_order_for_every_seed():
    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        for number in range(20):
            loop.call_soon(seen.append, number)
        for number in range(20, 40):
            loop.call_later(1.0, seen.append, number)
        await asyncio.sleep(2)
        return seen

    for seed in range(20):
        assert run(seed, main)[0] == list(range(40))


def test_tasks_interleave_differently_under_different_seeds():
    async def main() -> str:
        text: list[str] = []

        async def say(letter: str) -> None:
            for _ in range(4):
                text.append(letter)
                await asyncio.sleep(0)

        await asyncio.gather(*map(say, "abc"))
        return "".join(text)

    assert len({run(seed, main)[0] for seed in range(20)}) > 10


def test_deadlock_names_the_waiting_tasks():
    loop = SimLoop(1)

    async def waits_without_end() -> None:
        await loop.create_future()

    loop.new_process("node").create_task(waits_without_end())
    with pytest.raises(SimulationStuck, match=r"(?s)1 tasks wait.*node\.1 .*waits_without_end at .*test_sim_loop"):
        loop.run_until(lambda: False, deadline=10)
    loop.close()


def test_livelock_is_found(monkeypatch):
    monkeypatch.setattr("understudy.testing.sim.loop.STEPS_PER_INSTANT_MAX", 100)

    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuck, match="without time passing"):
        run(1, spins)


def test_run_until_stops_at_the_condition_or_the_deadline():
    loop = SimLoop(1)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    task = loop.create_task(tick())
    assert loop.run_until(lambda: len(ticks) == 3, deadline=100)
    assert loop.time() == 3.0
    assert not loop.run_until(lambda: False, deadline=5.5)
    assert (ticks, loop.time()) == ([1.0, 2.0, 3.0, 4.0, 5.0], 5.5)
    assert not task.done()
    loop.close()


def test_unhandled_exceptions_are_failures():
    loop = SimLoop(1)

    def bad() -> None:
        raise KeyError("oops")

    loop.new_process("node").call(loop.call_later, 1, bad)
    loop.run_until(deadline=2)
    (failure,) = loop.failures
    assert str(failure).startswith("1.000000 node.1: Exception in callback")
    assert isinstance(failure.exception, KeyError)
    loop.close()


def test_nothing_of_a_killed_process_runs_again():
    loop = SimLoop(3)
    effects: list[str] = []

    async def victim() -> None:
        try:
            async with asyncio.timeout(50):
                while True:
                    effects.append("step")
                    await asyncio.sleep(1)
        finally:
            effects.append("finally")

    process = loop.new_process("node")
    process.create_task(victim())
    process.call(loop.call_later, 20, effects.append, "timer")
    loop.run_until(deadline=3.5)
    process.call(loop.call_soon, effects.append, "ready")
    deaths: list[Death] = []
    process.on_death(deaths.append)
    process.kill()
    process.kill()
    assert deaths == [Death.KILLED]
    assert not loop.run_until(deadline=100)
    assert effects == ["step"] * 4
    assert not loop.failures
    loop.close()


def test_a_process_killed_in_the_middle_of_a_callback_unwinds_without_a_failure():
    loop = SimLoop(3)
    effects: list[str] = []

    async def victim() -> None:
        try:
            process.kill()
            process.check_alive()
            effects.append("after")
        except Exception:
            effects.append("handled")

    async def waiter(task: asyncio.Task[None]) -> None:
        await task
        effects.append("joined")

    process = loop.new_process("node")
    process.create_task(waiter(process.create_task(victim())))
    loop.run_until(deadline=10)
    assert (effects, loop.failures) == ([], [])
    with pytest.raises(ProcessKilled):
        process.check_alive()
    loop.close()


def test_a_paused_process_catches_up_when_resumed():
    loop = SimLoop(3)
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(loop.time())

    process = loop.new_process("node")
    process.create_task(tick())
    loop.run_until(deadline=2.5)
    process.pause()
    loop.run_until(deadline=7.25)
    assert ticks == [1.0, 2.0]
    process.resume()
    loop.run_until(deadline=8.5)
    assert ticks == [1.0, 2.0, 7.25, 8.25]
    loop.close()


def test_a_restarted_process_is_another_incarnation():
    loop = SimLoop(0)
    first, second = loop.new_process("a"), loop.new_process("a", host="h")
    assert (first.label, first.host, second.label, second.host) == ("a.1", "a", "a.2", "h")
    assert loop.processes_on("h") == [second]
    loop.close()


def test_cancelled_timers_do_not_move_time():
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for timer in [loop.call_later(100 + number, print) for number in range(1000)]:
            timer.cancel()
        await asyncio.sleep(1)
        return loop.time()

    loop = SimLoop(0)
    assert loop.run_until_complete(main()) == 1.0
    assert not loop.run_until(deadline=1.0)
    assert not loop._scheduled
    loop.close()


def test_threads_and_real_sockets_are_refused():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(NotImplementedError, match="no threads"):
            await asyncio.to_thread(print)
        with pytest.raises(NotImplementedError, match="no datagrams"):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol)
        with pytest.raises(RuntimeError, match="no SimNetwork"):
            await loop.create_connection(asyncio.Protocol, "h", 1)

    run(0, main)


def test_the_trace_can_be_read():
    lines: list[str] = []
    loop = SimLoop(0, write_trace=lines.append)
    loop.new_process("node").call(loop.call_later, 1.5, lines.clear)
    loop.run_until(deadline=2)
    loop.record("done")
    assert lines == ["      2.000000 done\n"]
    loop.close()
