"""Goal: no spelling of a secret survives, whether it is known or only stands where secrets stand."""

from __future__ import annotations

import json
from xml.sax.saxutils import escape

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


def test_an_empty_secret_masks_nothing() -> None:
    assert redact("text", [""]) == "text"
