"""Texts for people: names without control characters, URLs and values without secrets, wherever they are shown."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import understudy
from understudy.cli import main
from understudy.cli.main import cli
from understudy.client.core.url.parsing import parse_url
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import BrokerError, ConfigError, LocalProtocolError
from understudy.runtime.base.management_client import ManagementAddress
from understudy.texts import counted, has_login, masked_url, printable, printable_lines, reason_of
from understudy.wire.core.transport import TransportConfiguration

SECRET = "Sw0rdfish"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("tcp://user:Sw0rdfish@host:61616", "tcp://***@host:61616"),
        ("tcp://user:Sw0rdfish@host:61616?user=a@b", "tcp://***@host:61616?user=a@b"),
        ("(tcp://a:1,tcp://u:Sw0rdfish@b:2)?ha=true", "(tcp://a:1,tcp://***@b:2)?ha=true"),
        ("tcp://u:Sw0r/dfish@h", "tcp://***@h"),
        ("tcp://u:Sw0r@dfish@h", "tcp://***@h"),
        ("tcp://u:Sw0r?dfish@h", "tcp://***@h"),
        ("http://Sw0rdfish@h:8161/api", "http://***@h:8161/api"),
        ("tcp://h?password=Sw0rdfish&user=a", "tcp://h?password=***&user=a"),
        ("tcp://h?user=a;keyStorePassword=Sw0r,dfish", "tcp://h?user=a;keyStorePassword=***"),
        ("(tcp://h?trustStorePassword=Sw0rdfish,tcp://b)?password=Sw0r)dfish",
         "(tcp://h?trustStorePassword=***,tcp://b)?password=***"),
        ("tcp://h:1?user=a@b", "tcp://h:1?user=a@b"),
        ("no URL", "no URL"),
    ],
)  # fmt: skip
def test_a_shown_url_has_no_secret(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert has_login(url) is ("//***@" in shown)


def test_a_number_with_its_noun() -> None:
    assert [counted(each, "queue") for each in (0, 1, 2000)] == ["0 queues", "1 queue", "2,000 queues"]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(2, "No such file or directory", "b.json"), "No such file or directory"),
        (TimeoutError("timed out"), "timed out"),
        (ValueError("no number"), "no number"),
        ("a text", "a text"),
    ],
)
def test_a_reason_has_neither_the_number_nor_the_path_of_an_error(error: object, text: str) -> None:
    assert reason_of(error) == text


@given(st.text())
def test_printable_text_has_one_line_and_no_control_character(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
    assert all(line.isprintable() for line in re.split("[\n\t]", printable_lines(text)))


FORMS = (
    f"tcp://user:{SECRET}@127.0.0.1:1",
    f"tcp://{SECRET}@127.0.0.1:1",
    f"tcp://user:{SECRET}@127.0.0.1:x",
    f"tcp://user:a/{SECRET}@127.0.0.1:1",
    f"tcp://user:a@{SECRET}@127.0.0.1",
    f"tcp://user:a?{SECRET}@127.0.0.1:1",
    f"http://user:{SECRET}@127.0.0.1:1",
    f"tcp://127.0.0.1:1?password={SECRET}&x",
    f"tcp://127.0.0.1:1?password={SECRET}&nonsense=1",
    f"tcp://127.0.0.1:99999999?password={SECRET}",
    f"tcp://127.0.0.1:1?password=a&{SECRET}",
    f"udp://user:{SECRET}@231.7.7.7:9876",
    f"(tcp://127.0.0.1:1,tcp://user:{SECRET}@127.0.0.1:2)?ha=true",
)


def _read_element(name: str) -> Callable[[str], object]:
    def read(url: str) -> object:
        text = url.replace("&", "&amp;")
        core = f"<{name}s><{name} name='x'>{text}</{name}></{name}s>"
        return read_broker_xml(f"<configuration><core>{core}</core></configuration>".encode(), file="broker.xml")

    return read


READERS: dict[str, Callable[[str], object]] = {
    "client": parse_url,
    "transport": TransportConfiguration.from_url,
    "connector": _read_element("connector"),
    "acceptor": _read_element("acceptor"),
    "management": lambda url: ManagementAddress(url, "a token"),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("url", FORMS)
def test_no_error_and_no_representation_shows_a_secret_of_a_url(reader: str, url: str) -> None:
    shown = ""
    try:
        found = READERS[reader](url)
        shown = repr(found) if reader == "client" else ""
    except (ConfigError, LocalProtocolError) as error:
        shown = f"{error} {error!r} {error.hint}"
    assert SECRET not in shown


def test_a_login_in_front_of_a_host_is_understood_and_not_shown() -> None:
    found = parse_url(f"tcp://user:{SECRET}@host:1")
    assert (found.options.user, found.options.password) == ("user", SECRET)
    assert SECRET not in repr(found)


def _commands() -> list[list[str]]:
    """Every command with an option ``--url``, with its groups."""
    found = []

    def walk(group: click.Group, path: list[str]) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, click.Group):
                walk(command, [*path, name])
            elif command is not None and any("--url" in each.opts for each in command.params):
                found.append([*path, name])

    walk(cli, [])
    return found


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
@pytest.mark.parametrize("form", [f"tcp://user:{SECRET}@127.0.0.1:1", f"http://user:{SECRET}@127.0.0.1:1"])
def test_no_command_shows_a_secret_of_its_url(command: list[str], form: str) -> None:
    outcome = CliRunner().invoke(cli, [*command, "--url", form, "--queue", "q"])
    without = CliRunner().invoke(cli, [*command, "--url", form])
    for each in (outcome, without):
        assert each.exit_code != 0
        assert SECRET not in f"{each.output}{each.exception!r}"


def test_no_value_with_a_secret_shows_it_in_its_representation() -> None:
    """Dataclasses of all modules: representations get into logs, tracebacks and failed assertions."""
    shown = []
    for module in pkgutil.walk_packages(understudy.__path__, "understudy."):
        if module.name.startswith(("understudy.spark.", "understudy.testing.")):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and is_dataclass(value) and value.__module__ == module.name:
                shown += [
                    f"{module.name}.{value.__name__}.{each.name}"
                    for each in fields(value)
                    if re.search(r"(password|secret)$", each.name)
                    and each.repr
                    and re.match("str|bytes", str(each.type))
                ]
    assert not shown


def test_the_address_of_the_management_does_not_show_its_token() -> None:
    assert SECRET not in repr(ManagementAddress("http://127.0.0.1:1", SECRET))


def test_every_error_of_a_command_is_shown_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise BrokerError("no queue '\x1b]0;title\x07\x1b[2J'")

    monkeypatch.setattr(main, "cli", fail)
    outcome = CliRunner().invoke(click.command()(main.main))
    assert "\x1b" not in outcome.output
    assert "no queue" in outcome.output
