"""The OpenAPI document is valid, and its schemas describe exactly the answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec import to_builtins
from openapi_spec_validator import validate

from support.slices import finish
from understudy.management.doors import http, openapi
from understudy.management.doors.http import COLLECTIONS, PageQuery, all_routes
from understudy.management.model.node import Following, Readers, Server
from understudy.testing.fake_node import FakeNodeView, fake_item, fake_node

DOCUMENT: Any = openapi.document("1.2.3")
SCHEMAS: Any = DOCUMENT["components"]["schemas"]


def matches(value: Any, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether a value fits a schema of the document."""
    return Draft202012Validator({**schema, "components": {"schemas": schemas}}).is_valid(value)


def test_the_document_is_valid() -> None:
    validate(DOCUMENT)


def test_every_request_has_an_operation_id_of_its_own_and_a_tag() -> None:
    found = [operation for item in DOCUMENT["paths"].values() for operation in item.values()]
    ids = [operation["operationId"] for operation in found]
    assert len(ids) == len(set(ids)) == len(all_routes())
    tags = {each["name"] for each in DOCUMENT["tags"]}
    assert all(set(operation["tags"]) <= tags and operation["tags"] for operation in found)


def node_json(view: FakeNodeView) -> Any:
    return json.loads(finish(http.node_text(view)))


PASSIVE = FakeNodeView(
    fake_node(state="passive", peer=None, store=None, epoch=None, following=Following(True, 0)), items={}
)
ANSWERS: list[tuple[str, Any]] = [
    ("NodeWithQueues", node_json(FakeNodeView())),
    ("NodeWithQueues", node_json(PASSIVE)),
    ("Cluster", to_builtins(FakeNodeView().cluster())),
    ("Readiness", http.ready_json(PASSIVE.node())),
    ("Readers", http.readers_json(Readers())),
    ("Servers", http.servers_json([Server("n", "active", None)])),
    ("Live", {"status": "live"}),
    ("Error", http.error_json("a", "b")),
]


@pytest.mark.parametrize(("name", "value"), ANSWERS)
def test_every_answer_matches_its_schema(name: str, value: Any) -> None:
    assert matches(value, SCHEMAS[name], SCHEMAS)
    assert not matches({**value, "alien": 1}, SCHEMAS[name], SCHEMAS), "a schema that accepts anything"
    for field in value:
        rest = {key: each for key, each in value.items() if key != field}
        assert not matches(rest, SCHEMAS[name], SCHEMAS), f"an answer always has {field}"


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_page_and_every_item_matches_its_schema(name: str) -> None:
    collection = COLLECTIONS[name]
    item = fake_item(collection.kind)
    view = FakeNodeView(items={name: [item]})
    page = json.loads(finish(http.page_text(collection, view.rows(name), PageQuery())))
    kind = collection.kind.__name__
    assert page["items"] == [to_builtins(item)]
    assert matches(page, SCHEMAS[f"{kind}Page"], SCHEMAS)
    assert matches(to_builtins(item), SCHEMAS[kind], SCHEMAS)
    assert not matches({**to_builtins(item), "alien": 1}, SCHEMAS[kind], SCHEMAS)


def test_every_field_is_described() -> None:
    kinds = [collection.kind.__name__ for collection in COLLECTIONS.values()]
    for kind in kinds:
        undescribed = [name for name, each in SCHEMAS[kind]["properties"].items() if not each.get("description")]
        assert undescribed == [], kind


def test_the_document_names_its_version_and_its_lock() -> None:
    assert DOCUMENT["info"]["version"] == "1.2.3"
    open_paths = [path for path, item in DOCUMENT["paths"].items() if item.get("get", {}).get("security") == []]
    assert sorted(open_paths) == ["/health/live", "/health/ready"]
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            assert path in open_paths or "WWW-Authenticate" in operation["responses"]["401"]["headers"]
