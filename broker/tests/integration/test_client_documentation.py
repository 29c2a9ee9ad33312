"""Every Python example of the pages about the Python client, executed against a real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.targets import Target, start_target
from understudy.client.sync import connect

DOCS = Path(__file__).parents[3] / "docs" / "use"
EXAMPLES = [
    (page, example)
    for page in ("client.md", "client-amqp091.md", "coming-from.md")
    for example in re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = start_target("understudy", tmp_path_factory.mktemp("broker"), None)
    yield target
    target.end()


def execute(broker: Target, page: str, example: str) -> dict[str, object]:
    """The names that an example has defined."""
    place = broker.url.removeprefix("tcp://").partition("?")[0]
    names: dict[str, object] = {"url": broker.url, "place": place, "__name__": "example"}
    exec(compile(example, str(DOCS / page), "exec"), names)
    return names


def test_there_are_examples() -> None:
    pages = [page for page, _ in EXAMPLES]
    assert pages.count("client.md") >= 16
    assert pages.count("client-amqp091.md") == 1
    assert pages.count("coming-from.md") == 5


@pytest.mark.parametrize(("page", "example"), EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_example(broker: Target, page: str, example: str) -> None:
    execute(broker, page, example)


def test_the_web_application_of_the_page_sends_posted_orders(broker: Target) -> None:
    (page, example) = next(each for each in EXAMPLES if "starlette" in each[1])
    app: Any = execute(broker, page, example)["app"]
    asyncio.run(post(app, "/orders", b'{"number": 17}'))
    with connect(broker.url) as connection, connection.session() as session:
        message = session.consumer("web.orders").receive(5)
        assert message is not None
        assert message.json() == {"number": 17}


async def post(app: Any, path: str, body: bytes) -> None:
    """Start an ASGI application, send it one request, which it must accept, and stop it."""
    to_app: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    from_app: asyncio.Queue[dict[str, object]] = asyncio.Queue()
    lifespan = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    state = await from_app.get()
    assert state["type"] == "lifespan.startup.complete", state
    answers: list[dict[str, object]] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(part: dict[str, object]) -> None:
        answers.append(part)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "root_path": ""}
    await app(scope, receive, send)
    assert answers[0]["status"] == 202
    await to_app.put({"type": "lifespan.shutdown"})
    state = await from_app.get()
    assert state["type"] == "lifespan.shutdown.complete", state
    await lifespan
