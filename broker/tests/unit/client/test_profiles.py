"""Named client URLs: the file that the broker makes of a connection factory, read by our client."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.client import parse_url, profile_url
from understudy.client.core.url.profiles import named_url
from understudy.client.profiles import PROFILES_BYTES_MAX
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.errors import ConfigError

PLACES = {"netty": "tcp://10.0.0.1:61616?sslEnabled=true"}


def test_a_factory_of_the_broker_is_the_url_of_our_client(tmp_path: Path) -> None:
    entries = ("java:jboss/exported/jms/Remote Factory", "java:/Other")
    parameters = (("ha", "true"), ("reconnectAttempts", "-1"), ("clientID", "x=y"))
    factory = ConnectionFactoryConfiguration("Remote", ("netty",), entries, parameters)
    file = tmp_path / "jndi.properties"
    file.write_text(factory.jndi_properties(PLACES))
    for name in ("jms/Remote Factory", "java:jboss/exported/jms/Remote Factory", "java:/Other"):
        assert profile_url(file, name) == factory.url(PLACES)
    options = parse_url(profile_url(str(file), "java:/Other")).options
    assert (options.ha, options.reconnect_attempts, options.client_id) == (True, -1, "x=y")
    with pytest.raises(ConfigError, match=r"jndi\.properties: there is no connection factory 'jms/Remot'") as raised:
        profile_url(file, "jms/Remot")
    assert "the nearest name is 'jms/Remote Factory'" in str(raised.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("connectionFactory.a=tcp://h:1?ha=true", "tcp://h:1?ha=true"),
        ("  connectionFactory.a : tcp://h:1  ", "tcp://h:1"),
        ("connectionFactory.a tcp://h:1", "tcp://h:1"),
        ("# connectionFactory.a=x\n! connectionFactory.a=y\nconnectionFactory.a=tcp://h:1", "tcp://h:1"),
        ("connectionFactory.a=(tcp://h:1,\\\r\n   tcp://h:2)\r\nqueue.q=q", "(tcp://h:1,tcp://h:2)"),
        ("connectionFactory.a=x\nconnectionFactory.a=tcp\\u003A//h:1", "tcp://h:1"),
        ("connectionFactory.a=tcp://h:1\\", "tcp://h:1"),
    ],
)
def test_the_forms_of_a_file_of_properties_are_read(text: str, url: str) -> None:
    assert named_url(text, "a", "f") == url


def test_a_file_that_cannot_be_used_is_an_error_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "jndi.properties"
    with pytest.raises(ConfigError, match=r"cannot be read: No such file or directory$"):
        profile_url(file, "a")
    file.write_bytes(b"connectionFactory.a=\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        profile_url(file, "a")
    file.write_text("queue.q=q\n")
    with pytest.raises(ConfigError, match="no key that begins with connectionFactory"):
        profile_url(file, "a")
    file.write_bytes(b"#" * (PROFILES_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="more than"):
        profile_url(file, "a")


NAMES = st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1).filter(
    lambda name: name == name.strip() and not name.startswith("java:jboss/exported/")
)


@given(st.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_every_name_of_a_factory_is_found(names: list[str]) -> None:
    factory = ConnectionFactoryConfiguration("F", ("netty",), tuple(names), (("ha", "true"),))
    for name in names:
        assert named_url(factory.jndi_properties(PLACES), name, "f") == factory.url(PLACES)


@given(st.text())
def test_random_text_gives_documented_errors_only(text: str) -> None:
    with pytest.raises(ConfigError):
        named_url(text, "a name that is not there", "f")
