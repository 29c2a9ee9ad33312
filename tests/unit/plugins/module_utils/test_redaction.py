"""Goal: no spelling of a secret survives, whether it is known or only stands where secrets stand."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.redaction import MASK, redact
from hypothesis import given
from hypothesis import strategies as st


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=6).filter(lambda text: text not in MASK))
def test_no_spelling_of_a_known_secret_survives(secret: str) -> None:
    text = f"plain {secret} <note>{escape(secret)}</note> {json.dumps(secret)}"
    shown = redact(text, [secret])
    for spelling in (secret, escape(secret), json.dumps(secret)[1:-1]):
        assert spelling not in shown


def test_a_former_password_is_masked_by_its_element() -> None:
    shown = redact("<cluster-password>old</cluster-password><name>x</name><token a='1'>t</token>", [])
    assert shown == f"<cluster-password>{MASK}</cluster-password><name>x</name><token a='1'>{MASK}</token>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('<bridge password="old" name="b"/>', f'<bridge password="{MASK}" name="b"/>'),
        ('<property key="keyPassword" value="old"/>', f'<property key="keyPassword" value="{MASK}"/>'),
        (
            "tcp://a:1?sslEnabled=true;keyStorePassword=old;x=1",
            f"tcp://a:1?sslEnabled=true;keyStorePassword={MASK};x=1",
        ),
        ("tcp://a:1?a=1&amp;trustStorePassword=old</x>", f"tcp://a:1?a=1&amp;trustStorePassword={MASK}</x>"),
    ],
)
def test_former_secrets_in_attributes_and_urls_are_masked(text: str, shown: str) -> None:
    assert redact(text, []) == shown


def test_a_secret_is_masked_as_a_url_spells_it() -> None:
    assert redact("x=a%20b%26c", ["a b&c"]) == f"x={MASK}"


def test_an_empty_secret_masks_nothing() -> None:
    assert redact("text", [""]) == "text"
