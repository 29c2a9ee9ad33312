"""Named paths, and the directories of a store that start at them."""

from __future__ import annotations

import pytest

from understudy.config.model import Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError

PATHS = """
<path name="mount" path="/mnt/shared"/>
<path name="pair" path="pair-1" relative-to="mount"/>
<path name="own" path="stores"/>
"""


def read(core: str, paths: str = PATHS) -> Configuration:
    data = f"<configuration>{paths}<core><name>n</name>{core}</core></configuration>"
    return read_broker_xml(data.encode(), file="broker.xml", base_directory="/srv/node").configuration


@pytest.mark.parametrize(
    ("start", "text", "directory"),
    [
        ("mount", "journal", "/mnt/shared/journal"),
        ("pair", "journal", "/mnt/shared/pair-1/journal"),
        ("pair", "", "/mnt/shared/pair-1/data/journal"),
        ("pair", "/elsewhere", "/elsewhere"),
        ("own", "journal", "/srv/node/stores/journal"),
        ("jboss.server.data.dir", "data/journal", "/srv/node/data/journal"),
        ("jboss.server.base.dir", "x/../journal", "/srv/node/journal"),
    ],
)
def test_a_directory_starts_at_the_path_that_it_names(start: str, text: str, directory: str) -> None:
    found = read(f'<journal-directory relative-to="{start}">{text}</journal-directory>')
    assert found.journal_directory == directory
    # the lock of the store is beside its log
    assert found.node_manager_lock_directory == directory


@pytest.mark.parametrize("element", ["bindings-directory", "large-messages-directory", "paging-directory"])
def test_every_directory_of_a_store_may_start_at_a_path(element: str) -> None:
    found = read(f'<{element} relative-to="mount">x</{element}>')
    assert "/mnt/shared/x" in found.store_directories()


@pytest.mark.parametrize(
    ("core", "paths", "message"),
    [
        (
            '<journal-directory relative-to="moun">x</journal-directory>',
            PATHS,
            "no path 'moun' .*you mean 'mount'",
        ),
        ("<journal-directory/>", PATHS, "'' is no directory"),
        ("", '<path name="a" path="x" relative-to="b"/><path name="b" path="y" relative-to="a"/>', "starts at itself"),
        ("", '<path name="a" path="x" relative-to="none"/>', "no path 'none'"),
        ("", '<path name="a" path=""/>', "path"),
        ("", '<path name="jboss.server.data.dir" path="/x"/>', "is the instance directory"),
        ("", '<path name="a" path="/x"/><path name="a" path="/y"/>', "stands twice"),
    ],
)
def test_a_path_that_cannot_be_used_is_an_error(core: str, paths: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        read(core, paths)
    assert "broker.xml:" in str(raised.value)
