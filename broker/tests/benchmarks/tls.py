"""``python -m benchmarks.tls``, in broker/tests: TLS beside plain text, and other clients during a storm of handshakes.

One node with a plain and a TLS acceptor. The first figures are of messages of 1 KiB that one client sends with many
unconfirmed and another one receives, plain and encrypted in turns: messages per second, and CPU time of the broker for
each, which depends less on other work of the machine. The second is the latency of a client that sends one durable
message after the other while 200 connections with TLS are made at once.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from support.certificates import make
from support.ports import free_port
from support.processes import COMMAND, Pair
from understudy.client.aio import connect

ROUNDS = 3
MESSAGES = 60_000
STORM = 200


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rate(url: str, pid: int) -> tuple[float, float]:
    """Messages per second of a producer, then a consumer, and microseconds of the broker for each message."""
    began, used_s = time.monotonic(), cpu_s(pid)
    for command in ("produce", "consume"):
        size = ("--size", "1024") if command == "produce" else ()
        arguments = [str(COMMAND), command, "--url", url, "--queue", "q", "--count", str(MESSAGES), *size]
        subprocess.run(arguments, check=True, capture_output=True)
    return MESSAGES / (time.monotonic() - began), (cpu_s(pid) - used_s) / MESSAGES * 1e6


async def storm(plain: str, port: int, trust: Path) -> tuple[list[float], list[float], float]:
    """Latencies of the quiet client in milliseconds before and during the storm, and the seconds that it took."""
    connection = await connect(plain)
    session = await connection.session()
    producer = await session.producer("quiet")
    calm: list[float] = []
    stormy: list[float] = []
    sink = calm

    async def send() -> None:
        while True:
            began = time.perf_counter()
            await producer.send(b"x" * 100)
            sink.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.001)

    sending = asyncio.create_task(send())
    await asyncio.sleep(2)

    script = (
        "import asyncio,ssl,sys\n"
        "async def one(c,p):\n"
        "    r,w=await asyncio.open_connection('127.0.0.1',p,ssl=c,server_hostname='localhost'); return w\n"
        "async def main():\n"
        "    c=ssl.create_default_context(cafile=sys.argv[2])\n"
        f"    ws=await asyncio.gather(*(one(c,int(sys.argv[1])) for _ in range({STORM})))\n"
        "    [w.close() for w in ws]\n"
        "asyncio.run(main())\n"
    )

    sink = stormy
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(COMMAND.with_name("python"), "-c", script, str(port), str(trust))
    assert await process.wait() == 0
    took_s = time.perf_counter() - began
    sending.cancel()
    await connection.close()
    return calm, stormy, took_s


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        authority = make("CN=authority", authority=True)
        trust, server = authority.write_certificate(directory / "ca.pem"), directory / "server.pem"
        make(issuer=authority).write(server)
        port = free_port()
        pair = Pair(directory)
        node = pair.primary
        more = (
            f'<acceptor name="tls">tcp://127.0.0.1:{port}?sslEnabled=true;keyStorePath={server}</acceptor></acceptors>'
        )
        node.config.write_text(node.config.read_text().replace("</acceptors>", more))
        try:
            node.start().wait_ready("active")
            plain = f"tcp://127.0.0.1:{node.port}"
            encrypted = (
                f"tcp://localhost:{port}?sslEnabled=true&trustStorePath={trust}&useTopologyForLoadBalancing=false"
            )
            assert node.process is not None
            found: dict[str, list[tuple[float, float]]] = {"plain": [], "TLS": []}
            for _ in range(ROUNDS):
                found["plain"].append(rate(plain, node.process.pid))
                found["TLS"].append(rate(encrypted, node.process.pid))
            for kind, each in found.items():
                speed, cost = (statistics.median(values) for values in zip(*each, strict=True))
                print(f"{kind:6} {speed:7.0f} messages/s, {cost:5.1f} us of CPU of the broker for each message")
            for _ in range(ROUNDS):
                calm, stormy, took_s = asyncio.run(storm(plain, port, trust))
                for name, values in (("calm", calm), (f"{STORM} handshakes in {took_s:.1f} s", stormy)):
                    print(f"{name}: median {statistics.median(values):.1f} ms, worst {max(values):.0f} ms")
        finally:
            pair.end()


if __name__ == "__main__":
    main()
