"""Goal: rendered files show everything but secrets, and say mode and owner of each."""

from __future__ import annotations

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.redaction import MASK
from ansible_collections.understudy.broker.plugins.plugin_utils.rendering import LISTING, MADE_ON_HOST, rendered

XML = {
    "path": "/opt/understudy/instance/etc/broker.xml",
    "content": "<cluster-password>a secret of the pair</cluster-password><acceptor>tcp://h?keyStorePassword=of-the-store</acceptor>",
    "secrets": ["a secret of the pair"],
    "group": "understudy",
    "mode": "0640",
}
KEY = {"path": "/opt/understudy/instance/etc/broker.pem", "content": "a private key", "secret": True, "mode": "0640"}
TOKEN = {"path": "/opt/understudy/instance/etc/management.token", "content": "random", "keep": True, "mode": "0600"}
USERS = {"path": "/etc/users", "content": "shop = ENC(scrypt:1:2:3:abc)\n", "mode": "0640", "owner": "root"}


def contents(*files: dict[str, object], secrets: bool = False) -> dict[str, str]:
    return {each.path: each.content for each in rendered(files, secrets=secrets)}


def test_secrets_are_masked_in_every_kind_of_file() -> None:
    text = "".join(contents(XML, KEY, TOKEN, USERS).values())
    for secret in ("a secret of the pair", "of-the-store", "a private key", "random", "scrypt"):
        assert secret not in text
    assert text.count(MASK) >= 4


def test_secrets_are_shown_when_they_are_asked_for() -> None:
    found = contents(XML, KEY, TOKEN, USERS, secrets=True)
    assert found["opt/understudy/instance/etc/broker.xml"] == XML["content"]
    assert found["opt/understudy/instance/etc/broker.pem"] == KEY["content"]
    assert found["etc/users"] == USERS["content"]


@pytest.mark.parametrize("secrets", [True, False])
def test_a_random_content_is_not_shown_as_that_of_the_host(secrets: bool) -> None:
    assert contents(TOKEN, secrets=secrets)["opt/understudy/instance/etc/management.token"] == MADE_ON_HOST


def test_the_list_has_mode_owner_and_path_in_the_order_of_the_paths() -> None:
    assert contents(XML, USERS)[LISTING].splitlines()[1:] == [
        "0640 root: /etc/users",
        "0640 :understudy /opt/understudy/instance/etc/broker.xml",
    ]


def test_a_file_knows_its_directory() -> None:
    assert [each.directory for each in rendered([USERS], secrets=False)] == ["etc", ""]


@pytest.mark.parametrize(
    ("files", "problem"), [([USERS, USERS], "given twice"), ([{**USERS, "path": "x"}], "absolute")]
)
def test_files_without_a_place_of_their_own_are_refused(files: list[dict[str, object]], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        rendered(files, secrets=False)


def test_a_path_that_leaves_the_directory_is_refused() -> None:
    with pytest.raises(ValueError, match="absolute"):
        rendered([{**USERS, "path": "/etc/../../x"}], secrets=False)
