"""Properties of the configuration dataclasses."""

from __future__ import annotations

import dataclasses

import pytest

from understudy.config import model
from understudy.config.model import Configuration, ConfigWarning, format_url

CLASSES = [each for each in vars(model).values() if isinstance(each, type) and dataclasses.is_dataclass(each)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_configurations_cannot_be_changed(cls: type) -> None:
    name = dataclasses.fields(cls)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(cls.__new__(cls), name, None)
    assert "__slots__" in vars(cls)


def test_defaults_are_those_of_the_schema() -> None:
    found = Configuration()
    assert found.journal_file_size_bytes == 10 * 1024 * 1024
    assert found.id_cache_size == 20_000
    assert found.max_disk_usage_percent == 90
    assert found.lock_directory == found.journal_directory == "data/journal"


def test_a_warning_reads_like_an_error() -> None:
    assert str(ConfigWarning("left aside", "core/x", "broker.xml", 7)) == "broker.xml:7 core/x: left aside"


def test_urls() -> None:
    assert format_url("h", 1) == "tcp://h:1"
    assert format_url("::1", 1) == "tcp://[::1]:1"
