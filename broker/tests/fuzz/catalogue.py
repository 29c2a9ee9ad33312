"""Every target by its name."""

from __future__ import annotations

from fuzz.target import Target
from fuzz.targets_conversations import CONVERSATIONS
from fuzz.targets_store import STORE
from fuzz.targets_text import TEXT
from fuzz.targets_wire import WIRE

TARGETS: dict[str, Target] = {target.name: target for target in (*WIRE, *CONVERSATIONS, *TEXT, *STORE)}
