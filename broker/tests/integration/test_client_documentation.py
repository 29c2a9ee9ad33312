"""Every Python example of docs/client.md, executed against a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.targets import Target, start_target

PAGE = Path(__file__).parents[3] / "docs" / "client.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = start_target("understudy", tmp_path_factory.mktemp("broker"), None)
    yield target
    target.end()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 9


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_example(broker: Target, example: str) -> None:
    exec(compile(example, str(PAGE), "exec"), {"url": broker.url, "__name__": "example"})
