# SPDX-License-Identifier: Apache-2.0
"""broker.xml as structured YAML: the inverse of ``render``, for any document.

A value is text, ``None`` (an empty element) or a mapping; several elements of one name are a list. Pure.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence


class NoConfiguration(ValueError):
    """The text is not broker.xml."""


def core_of_document(text: str) -> dict[str, object]:
    """The elements of ``core``.

    Raises:
        NoConfiguration: the text is no XML, or has no element ``core``.
    """
    try:
        root = ET.fromstring(text.encode())
    except ET.ParseError as error:
        raise NoConfiguration(f"broker.xml: {error}") from error
    core = root if _name(root) == "core" else next((each for each in root if _name(each) == "core"), None)
    if core is None:
        raise NoConfiguration("broker.xml has no element 'core'")
    found = _value(core)
    return found if isinstance(found, dict) else {}


def beside_core(text: str) -> list[str]:
    """The elements beside ``core``, each with its name, of a text that ``core_of_document`` reads."""
    root = ET.fromstring(text.encode())
    if _name(root) == "core":
        return []
    return [f"{_name(each)} {each.get('name', '')}".rstrip() for each in root if _name(each) != "core"]


def _name(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _value(element: ET.Element) -> object:
    found: dict[str, object] = {f"@{name}": value for name, value in element.items()}
    for child in element:
        name, value = _name(child), _value(child)
        if name not in found:
            found[name] = value
            continue
        present = found[name]
        found[name] = [*present, value] if isinstance(present, list) else [present, value]
    text = element.text or ""
    if len(element):
        return found
    if found:
        return {**found, "#text": text} if text.strip() else found
    return text if text.strip() else None


def many(value: object) -> list[object]:
    """The entries of what may be one or several elements."""
    return list(value) if isinstance(value, list) else [value]


def as_mapping(value: object) -> dict[str, object]:
    """The parts of an element; empty for an empty element."""
    return dict(value) if isinstance(value, Mapping) else {}


def at(core: Mapping[str, object], steps: Sequence[str]) -> object:
    """The value at a path; None where there is none."""
    found: object = core
    for step in steps:
        found = as_mapping(found).get(step)
    return found


def take(core: dict[str, object], steps: Sequence[str]) -> object:
    """The value at a path, which is removed with the elements that it leaves empty; None where there is none."""
    below = core.get(steps[0])
    if len(steps) == 1:
        return core.pop(steps[0], None)
    if not isinstance(below, dict):
        return None
    found = take(below, steps[1:])
    if not below:
        del core[steps[0]]
    return found
