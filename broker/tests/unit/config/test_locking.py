"""The element ``manager``: class names, properties, and errors with element and line."""

from __future__ import annotations

import pytest

from support.config import FILE
from understudy.config.lock_options import (
    FileLockOptions,
    LockManagerOptions,
    WitnessLockOptions,
    ZooKeeperLockOptions,
)
from understudy.config.reading.document import Document
from understudy.config.reading.locking import parse_address, read_lock_manager
from understudy.config.schema.cluster_rows import LOCK_MANAGER
from understudy.config.schema.grammar import Support
from understudy.errors import ConfigError

PATH = "core/ha-policy/replication/primary/manager"


def read(class_name: str | None, *properties: tuple[str, str], document: Document | None = None) -> LockManagerOptions:
    """The options of an element with this class and these properties, one on each line from the third on."""
    document = document or Document(FILE, {})
    rows = "".join(f'\n<property key="{key}" value="{value}"/>' for key, value in properties)
    named = f"<class-name>{class_name}</class-name>" if class_name is not None else ""
    data = f"<manager>{named}\n<properties>{rows}\n</properties>\n</manager>".encode()
    # the element is refused where it stands until replication is carried out
    node = document._check(document._parse_xml(data), LOCK_MANAGER, PATH, Support.IMPLEMENTED)
    document.finish()
    return read_lock_manager(document, node)


def fails(class_name: str | None, *properties: tuple[str, str]) -> ConfigError:
    """The error of such an element."""
    with pytest.raises(ConfigError) as caught:
        read(class_name, *properties)
    assert caught.value.file == FILE
    assert caught.value.path.startswith(PATH)
    return caught.value


ARTEMIS = "org.apache.activemq.artemis"


@pytest.mark.parametrize(
    "name",
    ["file", f"{ARTEMIS}.lockmanager.file.FileBasedLockManager", f"{ARTEMIS}.quorum.file.FileBasedPrimitiveManager"],
)
def test_a_directory(name: str) -> None:
    assert read(name, ("locks-folder", "/mnt/locks")) == FileLockOptions("/mnt/locks")


@pytest.mark.parametrize(
    "name",
    [
        None,
        "zookeeper",
        f"{ARTEMIS}.lockmanager.zookeeper.CuratorDistributedLockManager",
        f"{ARTEMIS}.quorum.zookeeper.CuratorDistributedPrimitiveManager",
    ],
)
def test_zookeeper_has_the_defaults_of_artemis(name: str | None) -> None:
    found = read(name, ("connect-string", "a:2181,b:2181"))
    assert found == ZooKeeperLockOptions("a:2181,b:2181", "", 18_000, 33, 8_000, 1, 1_000)


def test_all_properties_of_zookeeper() -> None:
    values = {
        "connect-string": "a:1",
        "namespace": "n/m",
        "session-ms": "5000",
        "session-percent": "50",
        "connection-ms": "1000",
        "retries": "-1",
        "retries-ms": "0",
        "auth": "digest:u:p",
        "tls-ca": "/ca",
        "tls-certificate": "/c",
        "tls-key": "/k",
    }
    found = read("zookeeper", *values.items())
    assert found == ZooKeeperLockOptions("a:1", "n/m", 5000, 50, 1000, -1, 0, "digest:u:p", "/ca", "/c", "/k")
    assert "u:p" not in repr(found)


def test_a_witness() -> None:
    found = read("witness", ("addresses", "w1:61619, [::1]:7"), ("secret-file", "/s"), ("id", "0f" * 16))
    assert found == WitnessLockOptions((("w1", 61619), ("::1", 7)), "/s", 6_000, b"\x0f" * 16)


def test_a_witness_on_this_host_is_a_warning() -> None:
    document = Document(FILE, {})
    read("witness", ("addresses", "127.0.0.1:1"), ("secret-file", "/s"), document=document)
    assert "fails together with it" in str(document.warnings[0])


@pytest.mark.parametrize(
    ("class_name", "properties", "line", "text"),
    [
        ("zookeper", [], 1, "did you mean 'zookeeper'"),
        ("com.example.Mine", [], 1, "cannot be loaded here (built in: file, zookeeper, witness"),
        ("file", [], 2, "needs the property 'locks-folder'"),
        ("file", [("locks-folder", "")], 3, "attribute 'value' is missing"),
        ("file", [("locks-folder", "/a"), ("lock-folder", "/b")], 4, "did you mean 'locks-folder'"),
        ("file", [("locks-folder", "/a"), ("locks-folder", "/b")], 4, "stands twice"),
        ("zookeeper", [("connect-string", "a:1"), ("session-ms", "0")], 4, "'session-ms': a whole number from 1"),
        ("zookeeper", [("connect-string", "a:1"), ("session-percent", "101")], 4, "from 0 to 100"),
        ("zookeeper", [("connect-string", "a:1"), ("retries", "x")], 4, "a whole number"),
        ("zookeeper", [("connect-string", "a:1"), ("namespace", "/n")], 4, "without a slash"),
        ("zookeeper", [("connect-string", "a:1"), ("auth", "digest")], 4, "scheme:credential"),
        ("zookeeper", [("connect-string", "a:1"), ("tls-key", "/k")], 2, "belong together"),
        ("witness", [("addresses", "w1")], 3, "host:port is wanted"),
        ("witness", [("addresses", "w1:0")], 3, "host:port is wanted"),
        ("witness", [("addresses", "::1:7")], 3, "in brackets"),
        ("witness", [("addresses", "w1:1")], 2, "needs the property 'secret-file'"),
        ("witness", [("addresses", "w1:1,w2:1"), ("secret-file", "/s")], 2, "need the property 'id'"),
        ("witness", [("addresses", "w1:1"), ("secret-file", "/s"), ("id", "00")], 5, "32 hexadecimal digits"),
        ("witness", [("addresses", "w1:1"), ("secret-file", "/s"), ("lease-ms", "499")], 5, "from 500 to 300000"),
    ],
)
def test_errors_name_the_element_and_its_line(
    class_name: str, properties: list[tuple[str, str]], line: int, text: str
) -> None:
    error = fails(class_name, *properties)
    assert text in str(error)
    assert error.line == line


def test_addresses() -> None:
    assert parse_address("[fe80::1]:61619") == ("fe80::1", 61619)
    for bad in ("", ":1", "h:", "h:70000", "h:x"):
        with pytest.raises(ValueError, match="host:port"):
            parse_address(bad)


@pytest.mark.parametrize("value", ["w1,w2,[::3]", "witness://w1:61619, w2:61619,[::3]:61619"])
def test_a_group_of_witnesses(value: str) -> None:
    found = read("witness", ("members", value), ("secret-file", "/s"))
    assert found == WitnessLockOptions((), "/s", members=(("w1", 61619), ("w2", 61619), ("::3", 61619)))


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ([("members", "a,b")], "2 witnesses; an odd number"),
        ([("members", "a,b,c,d")], "4 witnesses; an odd number"),
        ([("members", "a,b,a:61619")], "a witness stands twice"),
        ([("members", "a,b,c:0")], "host:port is wanted"),
        ([("members", "a,b,c"), ("addresses", "a:1")], "one of the properties 'addresses' and 'members'"),
        ([], "one of the properties 'addresses' and 'members'"),
        ([("members", "a,b,c"), ("id", "0f" * 16)], "property 'id' belongs to 'addresses'"),
    ],
)
def test_a_wrong_group_of_witnesses(properties: list[tuple[str, str]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        read("witness", *properties, ("secret-file", "/s"))
