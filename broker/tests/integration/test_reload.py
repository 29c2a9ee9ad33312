"""Goal: files of a running node may change: what counts at once does, what is wrong changes nothing.

Method: real processes whose broker.xml, users and roles are written anew; what happened is read from the log and asked
over HTTP.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, READY_S, TOKEN, Node, Pair

OFTEN = "<configuration-file-refresh-period>50</configuration-file-refresh-period>"
NEVER = "<configuration-file-refresh-period>-1</configuration-file-refresh-period>"
ADDED = """
    <addresses>
      <address name="orders"><anycast><queue name="orders"/></anycast></address>
      <address name="copies"><anycast><queue name="copies"/></anycast></address>
    </addresses>
    <address-settings>
      <address-setting match="orders"><redelivery-delay>4321</redelivery-delay></address-setting>
    </address-settings>
    <diverts>
      <divert name="copy"><address>orders</address><forwarding-address>copies</forwarding-address></divert>
    </diverts>
    <journal-min-files>3</journal-min-files>
"""


def rewrite(node: Node, old: str, new: str) -> None:
    text = node.config.read_text()
    assert old in text
    changed = node.config.with_suffix(".new")
    changed.write_text(text.replace(old, new))
    changed.replace(node.config)


def until(node: Node, holds: Callable[[], bool], what: str) -> None:
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < READY_S, f"{what}: {node.tail()}"
        time.sleep(0.02)


def entries(node: Node, event: str) -> list[dict[str, Any]]:
    lines = node.log.read_text(errors="replace").splitlines()
    return [entry for line in lines if line.startswith("{") and (entry := json.loads(line))["event"] == event]


def invoke(node: Node, resource: str, operation: str, *parameters: object) -> tuple[int, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{node.http_port}/api/v1/invoke",
        data=json.dumps({"resource": resource, "operation": operation, "parameters": parameters}).encode(),
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def settings_of(node: Node, address: str) -> Any:
    status, answer = invoke(node, "broker", "getAddressSettingsAsJSON", address)
    assert status == 200, answer
    return json.loads(answer["result"])


def produce(node: Node, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "produce", "--url", f"tcp://127.0.0.1:{node.port}", "--queue", "orders", "--count", "3"]
    return forked.run([*command, "--size", "10", *options], capture_output=True, text=True, timeout=60)


@pytest.fixture
def made(nodes: Nodes) -> Callable[..., Pair]:
    return nodes.pair


def test_a_changed_file_counts_at_once_on_both_nodes_and_settings_of_management_go_before_it(
    made: Callable[..., Pair],
) -> None:
    pair = made(extra=OFTEN, failover_on_shutdown=True).start()
    primary, backup = pair.primary, pair.backup
    rewrite(primary, OFTEN, OFTEN + "\n<address-settings>\n<address-setting match='#'><no-such-thing/>")
    until(primary, lambda: bool(entries(primary, "changed configuration not applied")), "the bad file was not told")
    for node in (primary, backup):
        if node is primary:
            rewrite(node, "\n<address-settings>\n<address-setting match='#'><no-such-thing/>", ADDED)
        else:
            rewrite(node, OFTEN, OFTEN + ADDED)
        # The last line of a reload: the line with the applied elements is written before it.
        last = "changes in the configuration that need a restart"
        until(node, lambda: bool(entries(node, last)), "not reloaded")  # noqa: B023
        (reloaded,) = entries(node, "configuration reloaded")
        assert reloaded["applied"] == ["addresses", "address-settings", "diverts"]
        (restart,) = entries(node, last)
        assert restart["elements"] == ["journal-min-files"]
    (bad,) = entries(primary, "changed configuration not applied")
    assert "broker.xml:" in bad["error"]
    assert settings_of(primary, "orders")["redeliveryDelay"] == 4321
    status, answer = invoke(primary, "broker", "addAddressSettings", "orders", '{"redeliveryDelay": 77}')
    assert status == 200, answer
    assert produce(primary).returncode == 0
    assert primary.terminate() == 0
    backup.wait_ready("active")
    assert settings_of(backup, "orders")["redeliveryDelay"] == 77
    assert backup.queue("copies")["message_count"] == 3  # type: ignore[index]
    assert produce(backup).returncode == 0
    assert backup.queue("copies")["message_count"] == 6  # type: ignore[index]


def test_management_reloads_where_the_file_is_not_watched_and_says_what_is_wrong(made: Callable[..., Pair]) -> None:
    node = made(extra=NEVER).primary.start()
    node.wait_ready("active")
    rewrite(node, NEVER, NEVER + ADDED)
    assert node.queue("copies") is None
    status, answer = invoke(node, "broker", "reloadConfigurationFile")
    assert status == 200, answer
    assert node.queue("copies") is not None
    rewrite(node, '<anycast><queue name="copies"/></anycast>', '<anycast><queue name="copies"/><queue/></anycast>')
    status, answer = invoke(node, "broker", "reloadConfigurationFile")
    assert status != 200
    assert "queue" in json.dumps(answer)
    rewrite(node, "<queue/>", '<queue name="orders"/>')
    rewrite(node, '<anycast><queue name="orders"/></anycast>', "<anycast/>")
    status, answer = invoke(node, "broker", "reloadConfigurationFile")
    assert "exists on address 'orders'" in json.dumps(answer)
    assert node.queue("orders")["address"] == "orders"  # type: ignore[index]


def test_management_reads_users_at_once_and_says_what_is_wrong(made: Callable[..., Pair]) -> None:
    node = made(security=True).primary.start()
    node.wait_ready("active")
    file = node.config.parent / "artemis-users.properties"
    users = file.read_text()
    file.write_text(users + users.replace("bob", "eve"))
    status, answer = invoke(node, "broker", "reloadConfigurationFile")
    assert status == 200, answer
    # before the answer, not when the files are looked at the next time
    assert len(entries(node, "users and roles reloaded")) == 1
    file.write_text("bob = plain-text\n")
    status, answer = invoke(node, "broker", "reloadConfigurationFile")
    assert status != 200
    assert "artemis-users.properties" in json.dumps(answer)
    assert "plain-text" not in json.dumps(answer)


@pytest.mark.long
def test_users_that_are_added_may_log_in_and_users_that_are_removed_may_nothing(made: Callable[..., Pair]) -> None:
    pair = made(security=True)
    node = pair.primary.start()
    node.wait_ready("active")
    etc = node.config.parent
    password = etc / "password"
    password.write_text("secret of bob\n")
    password.chmod(0o600)
    eve = ("--user", "eve", "--password-file", str(password))
    assert produce(node, *eve).returncode != 0
    users = (etc / "artemis-users.properties").read_text()
    for count, text in ((1, users + users.replace("bob", "eve")), (2, users)):
        (etc / "artemis-roles.properties").write_text("everything = bob, eve\n")
        (etc / "artemis-users.properties").write_text(text)
        until(node, lambda: len(entries(node, "users and roles reloaded")) >= count, "not reloaded")  # noqa: B023
        assert (produce(node, *eve).returncode == 0) is ("eve" in text)
    (etc / "artemis-users.properties").write_text("bob = plain-text\n")
    until(node, lambda: bool(entries(node, "changed users or roles not applied")), "the plain password was not told")
    assert "plain-text" not in node.log.read_text()
    assert produce(node, "--user", "bob", "--password-file", str(password)).returncode == 0
