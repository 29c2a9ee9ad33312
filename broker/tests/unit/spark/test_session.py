"""The settings of every Spark session are complete, and missing packages are reported by name. Spark is not started."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pyspark
import pytest

from understudy.errors import ConfigError
from understudy.spark import session
from understudy.spark.session import (
    java_command,
    java_major,
    local_master,
    require_spark,
    settings,
    submitted_settings,
)


def test_local_sessions_listen_on_loopback_only_and_retry_tasks() -> None:
    found = settings("local[3]", "/work", cores=8)
    assert found["spark.master"] == "local[3,4]"
    assert found["spark.sql.shuffle.partitions"] == "3"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings("local[*]", "/work", cores=8)["spark.master"] == "local[8,4]"


@pytest.mark.parametrize("master", ["local", "spark://master:7077", "yarn"])
def test_every_session_is_closed_and_predictable(master: str) -> None:
    found = settings(master, "/work", cores=2)
    expected = {
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.master.rest.enabled": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": "/work",
    }
    assert {name: found.get(name) for name in expected} == expected


def test_a_cluster_keeps_its_own_addresses() -> None:
    found = settings("spark://master:7077", "/work", cores=2)
    assert found["spark.master"] == "spark://master:7077"
    assert not {"spark.driver.host", "spark.sql.shuffle.partitions"} & set(found)


def test_settings_of_spark_submit_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    assert submitted_settings() == {}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    given = [("spark.master", "spark://h:7077"), ("spark.pyspark.python", "/other/python")]
    monkeypatch.setattr(pyspark, "SparkConf", lambda: type("Given", (), {"getAll": lambda self: given})())
    assert submitted_settings() == dict(given)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[6,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,4]"),
        ("local[0]", None),
        ("local[²]", None),
        ("spark://local[2]", None),
    ],
)
def test_local_masters(master: str, expected: str | None) -> None:
    assert local_master(master, 6) == expected


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nonsense", None),
    ],
)
def test_java_versions(text: str, major: int | None) -> None:
    assert java_major(text) == major


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_a_missing_package_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find("json"))
    with pytest.raises(ConfigError, match=missing) as caught:
        require_spark()
    assert "understudy[spark]" in str(caught.value)


def test_missing_and_old_java_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Java is not installed"):
        require_spark()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'java version \"1.8.0_1\"' >&2\n")
    java.chmod(0o755)
    assert java_command(str(tmp_path)) == str(java)
    assert java_command(str(tmp_path / "other")) is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="version 8"):
        require_spark()
