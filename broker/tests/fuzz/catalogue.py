"""Every target by its name."""

from __future__ import annotations

from fuzz.target import Target
from fuzz.targets_amqp091 import AMQP091
from fuzz.targets_client091 import CLIENT091
from fuzz.targets_conversations import CONVERSATIONS
from fuzz.targets_kernel import KERNEL
from fuzz.targets_network import NETWORK
from fuzz.targets_snapshot import SNAPSHOT
from fuzz.targets_store import STORE
from fuzz.targets_text import TEXT
from fuzz.targets_wire import WIRE
from fuzz.targets_witness import WITNESS

_ALL = (*WIRE, *AMQP091, *CLIENT091, *CONVERSATIONS, *TEXT, *STORE, *KERNEL, *SNAPSHOT, *NETWORK, *WITNESS)
TARGETS: dict[str, Target] = {target.name: target for target in _ALL}
