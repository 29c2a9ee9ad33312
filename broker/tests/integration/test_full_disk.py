"""A disk that is really full: a small tmpfs as the store (needs root for the mount).

Goal: producers are held back or get an error, nothing confirmed is lost, and service resumes when
space is free again. Method: fill, count the confirmations, consume everything.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import forked
from support.processes import COMMAND, Pair

EXTRA = """
    <max-disk-usage>100</max-disk-usage>
    <address-settings>
      <address-setting match="fails"><address-full-policy>FAIL</address-full-policy></address-setting>
    </address-settings>
"""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, extra=EXTRA)
    made.store.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(made.store)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.decode().strip()} (uid {os.geteuid()})")
    try:
        made.primary.start().wait_ready("active")
        yield made
    finally:
        made.end()
        subprocess.run(["umount", str(made.store)], check=True)


def run(*arguments: object, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), *map(str, arguments)]
    return forked.run(command, capture_output=True, text=True, timeout=timeout_s)


@pytest.mark.parametrize("address", ["fails", pytest.param("blocks", marks=pytest.mark.long)])
def test_messages_confirmed_before_the_disk_was_full_are_all_kept(pair: Pair, tmp_path: Path, address: str) -> None:
    url = f"tcp://127.0.0.1:{pair.primary.port}"
    ledger = tmp_path / "produced.jsonl"
    filling = forked.Popen(
        [str(COMMAND), "produce", "--url", f"{url}?callTimeout=60000", "--queue", address, "--count", "200000",
         "--size", "1000", "--ledger", str(ledger)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while not pair.primary.facts()["store"]["full"]:  # type: ignore[index]
        assert pair.primary.process is not None
        assert pair.primary.process.poll() is None, pair.primary.tail()
        assert filling.poll() is None or pair.primary.facts()["store"]["full"], filling.communicate()  # type: ignore[index]
    status, ready = pair.primary.get("/health/ready")
    assert status == 503
    assert "full" in str(ready["reason"])
    filling.kill()
    said = filling.communicate()[0]
    confirmed = ledger.read_text().count('"CONFIRMED"')
    assert 1_000 < confirmed < 200_000, said

    # the store can be opened again although nothing can be allocated
    pair.primary.kill()
    pair.primary.start()
    consumed = tmp_path / "consumed.jsonl"
    # it is not ready for producers, but it says what there is
    while not (pair.primary.facts() and (kept := pair.primary.queue(address))):
        assert pair.primary.process is not None
        assert pair.primary.process.poll() is None, pair.primary.tail()
    out = run("consume", "--url", url, "--queue", address, "--count", kept["message_count"],
              "--ledger", consumed, "--ack", "transacted", "--batch", 100, "--json", timeout_s=180)  # fmt: skip
    assert out.returncode == 0, out.stdout + out.stderr + pair.primary.tail()
    assert json.loads(out.stdout)["acknowledged"] >= confirmed
    report = run("ledger", "check", "--json", ledger, consumed)
    assert report.returncode == 0, report.stdout
