"""Parameters of an operation as the log shows them: secrets are masked, long values are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from understudy.management.operations.table import Operation
from understudy.texts import masked_url

MASK: Final = "***"
_SHOWN_CHARACTERS_MAX: Final = 200
#: Longest text that is searched for a login: a longer one is no address.
_SEARCHED_CHARACTERS_MAX: Final = 2_000
_SECRET: Final = re.compile(r"passw|secret|token|credential|passphrase", re.IGNORECASE)


def shown_parameters(row: Operation, values: Sequence[object]) -> str:
    """``name=value`` of each parameter, separated by commas."""
    return ", ".join(
        f"{parameter.name}={_shown(parameter.name, value)}"
        for parameter, value in zip(row.parameters, values, strict=True)
    )


def _shown(name: str, value: object) -> str:
    if _SECRET.search(name) and value is not None:
        return MASK
    if isinstance(value, str):
        text = _masked_json(value) if value[:1] in ("{", "[") else _masked_text(value)
    else:
        text = json.dumps(_masked(value), default=str)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def _masked_json(text: str) -> str:
    try:
        return json.dumps(_masked(json.loads(text)))
    except ValueError:
        # a text that is no JSON might have a secret anywhere
        return f"{MASK} ({len(text)} characters)"


def _masked(value: object) -> object:
    if isinstance(value, dict):
        return {key: MASK if _SECRET.search(str(key)) and each else _masked(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return _masked_text(value) if isinstance(value, str) else value


def _masked_text(text: str) -> str:
    if "://" not in text:
        return text
    return masked_url(text) if len(text) <= _SEARCHED_CHARACTERS_MAX else f"{MASK} ({len(text)} characters)"
