"""``python -m fuzz.record``: have real clients talk to a real broker and keep their bytes in ``corpus/``.

Our own client by its commands, and the Artemis JMS client by the scenarios of ``interop/java`` where
Maven is there. Streams are cut at the end of a frame, and equal ones are kept once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import click

from fuzz.captures import CORPUS
from support.processes import COMMAND, Pair
from support.proxy import Recording, proxy_to

#: Bytes kept of one direction of one connection.
STREAM_BYTES_MAX = 3000
#: Runs kept of one direction of one connection.
WINDOWS_MAX = 4
#: Connections kept of one client.
STREAMS_MAX = 5
JAVA_SCENARIOS = ("JmsBasics",)


def windows(data: bytes) -> list[bytes]:
    """Runs of whole frames from all over a stream; the magic stays in front of the first."""
    found: list[bytes] = []
    start = end = len(b"ARTEMIS") if data.startswith(b"ARTEMIS") else 0
    while end + 4 <= len(data):
        size = 4 + int.from_bytes(data[end : end + 4])
        if end + size > len(data):
            break
        if end + size - start > STREAM_BYTES_MAX:
            found.append(data[start:end])
            start = end
        end += size
    found.append(data[start:end])
    found[0] = data[: len(data) - len(data.removeprefix(b"ARTEMIS"))] + found[0]
    step = max(1, len(found) // WINDOWS_MAX)
    return [window for window in found[::step] if 0 < len(window) <= 2 * STREAM_BYTES_MAX]


def keep(client: str, recordings: list[Recording]) -> int:
    """Write the streams of a client's connections; how many files."""
    CORPUS.mkdir(exist_ok=True)
    for path in CORPUS.glob(f"{client}-*.to-*"):
        path.unlink()
    seen: set[bytes] = set()
    for number, recording in enumerate(sorted(recordings, key=lambda each: -len(each.to_server))[:STREAMS_MAX]):
        for direction, data in (("to-server", recording.to_server), ("to-client", recording.to_client)):
            for place, stream in enumerate(windows(bytes(data))):
                if stream not in seen:
                    seen.add(stream)
                    (CORPUS / f"{client}-{number}-{place}.{direction}").write_bytes(stream)
    return len(seen)


def our_client(port: int) -> None:
    """Produce, browse, consume: durable and not, confirmed and transacted."""
    url = f"tcp://127.0.0.1:{port}"
    for arguments in (
        ("produce", "--queue", "q", "--count", "5", "--size", "40"),
        ("produce", "--queue", "q", "--count", "3", "--size", "10", "--non-durable", "--blocking"),
        ("browse", "--queue", "q"),
        ("consume", "--queue", "q", "--count", "4", "--ack", "client"),
        ("consume", "--queue", "q", "--count", "4", "--ack", "transacted", "--batch", "2"),
    ):
        done = subprocess.run(
            [str(COMMAND), arguments[0], "--url", url, *arguments[1:]], capture_output=True, text=True
        )
        if done.returncode:
            raise click.ClickException(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")


@click.command()
@click.option(
    "--classpath", help="Classes of the compiled scenarios of interop/java; without them only our client is recorded."
)
def main(classpath: str | None) -> None:
    """Record the files of corpus/ anew."""
    with tempfile.TemporaryDirectory() as directory:
        pair = Pair(Path(directory))
        try:
            pair.primary.start().wait_ready("active")
            with proxy_to(pair.primary.port, record=True) as proxy:
                our_client(proxy.port)
                click.echo(f"understudy: {keep('understudy', proxy.recordings)} streams")
            for scenario in JAVA_SCENARIOS if classpath else ():
                with proxy_to(pair.primary.port, record=True) as proxy:
                    url = f"tcp://127.0.0.1:{proxy.port}?useTopologyForLoadBalancing=false"
                    command = ["java", "-cp", str(classpath), f"understudy.interop.{scenario}", url]
                    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
                    name = f"artemis-{scenario.lower()}"
                    click.echo(f"{name}: exit {done.returncode}, {keep(name, proxy.recordings)} streams")
        finally:
            pair.end()


if __name__ == "__main__":
    sys.exit(main())
