"""Goal: a support bundle describes a node whether or not it runs, and has no secret in it."""

from __future__ import annotations

import io
import tarfile

from ansible_collections.understudy.broker.plugins.module_utils.support import (
    BYTES_MAX,
    Command,
    archive,
    commands,
    outcome,
)


def unpacked(packed: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as bundle:
        members = [(member.name, bundle.extractfile(member)) for member in bundle.getmembers()]
        return {name: content.read().decode() for name, content in members if content is not None}


def test_secrets_are_masked_in_every_file() -> None:
    texts = {
        "journal.txt": "login of guest with s3cret&value",
        "broker.xml": "<cluster-password>another</cluster-password><name>a</name>",
        "status.json": '{"url": "tcp://h?trustStorePassword=third"}',
    }
    found = unpacked(archive("a1", texts, ["s3cret&value", ""]))
    assert sorted(found) == ["a1/broker.xml", "a1/journal.txt", "a1/status.json"]
    assert not [text for text in found.values() if any(each in text for each in ("s3cret", "another", "third"))]
    assert "<name>a</name>" in found["a1/broker.xml"]


def test_the_end_of_a_long_text_is_kept() -> None:
    found = unpacked(archive("a1", {"journal.txt": "x" * BYTES_MAX + "end"}, []))
    assert len(found["a1/journal.txt"]) == BYTES_MAX
    assert found["a1/journal.txt"].endswith("end")


def test_a_failed_program_says_so() -> None:
    command = Command("sockets.txt", ("ss", "-tanp"))
    assert outcome(command, 0, "sockets\n", "") == "sockets\n"
    assert outcome(command, 127, "", "not found") == "not found\nss -tanp: exit code 127\n"


def test_changes_of_the_management_cli_are_part_of_a_bundle() -> None:
    (changes,) = [each for each in commands("/u", "/i", "", "", 10) if each.name == "overrides.json"]
    assert changes.arguments == ("/u", "config", "diff", "--instance", "/i", "--json")
    # the code says that there are changes; the text stays JSON
    assert outcome(changes, 1, "[]\n", "") == "[]\n"
    assert (
        outcome(changes, 2, "", "cannot be read")
        == "cannot be read\n/u config diff --instance /i --json: exit code 2\n"
    )


def test_the_journal_belongs_to_a_unit_only() -> None:
    with_unit = {each.name for each in commands("/u", "/i", "understudy-a1.service", "/srv", 10)}
    without = {each.name for each in commands("/u", "/i", "", "", 10)}
    assert with_unit - without == {"unit.txt", "unit-status.txt", "journal.txt", "kernel.txt", "store.txt"}
