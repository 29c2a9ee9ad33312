"""Numbers of a witness that is one of a group: each is a register that a majority of the group agrees on (ADR 0117).

A change has two phases. A client first has a majority promise to take no older ballot, which shows the newest value
that any of them has accepted; then it has a majority accept a value with its ballot. So two changes never both succeed
from the same value, and a change that only a minority got is completed or replaced by the next one.

The highest part of a ballot is the number of the configuration of the group. It rises when a member is replaced, and a
member takes ballots of its own configuration only: a change that was begun with the member before has no effect.
"""

from __future__ import annotations

import json
from typing import Any, Final

from understudy.dataclass import dataclass
from understudy.errors import RemoteProtocolError
from understudy.ha.witness.frames import NO_TOKEN, TOKEN_BYTES

#: Bits of a ballot below the number of the configuration.
BALLOT_BITS: Final = 40
#: Highest number of a configuration.
CONFIGURATION_MAX: Final = 2**22 - 1
#: Number of registers in one answer to EXPORT.
EXPORT_MAX: Final = 100


@dataclass(frozen=True, slots=True, order=True)
class Ballot:
    """Ballot of one attempt to change a register; ballots have a total order."""

    number: int = 0
    """Configuration, and the count of the client."""
    token: bytes = NO_TOKEN
    """Random bytes by which no two clients have the same ballot."""

    @property
    def configuration(self) -> int:
        """Number of the configuration of the group."""
        return self.number >> BALLOT_BITS

    def after(self, configuration: int, token: bytes) -> Ballot:
        """A higher ballot in this configuration."""
        return Ballot(max(self.number, configuration << BALLOT_BITS) + 1, token)


@dataclass(frozen=True, slots=True)
class Register:
    """One number at one member of a group."""

    promised: Ballot = Ballot()
    """Lowest ballot that the member accepts."""
    accepted: Ballot = Ballot()
    """Ballot of ``value``; the lowest one: no value was accepted, the number is 0."""
    value: int = 0

    def as_json(self) -> list[object]:
        """The register for the state file and for answers."""
        return [
            self.promised.number,
            self.promised.token.hex(),
            self.accepted.number,
            self.accepted.token.hex(),
            self.value,
        ]

    @classmethod
    def from_json(cls, found: Any) -> Register:
        """Make a register from JSON values. Raises ValueError, TypeError: they are no register."""
        promised, promised_token, accepted, accepted_token, value = found
        register = cls(
            Ballot(int(promised), bytes.fromhex(promised_token)),
            Ballot(int(accepted), bytes.fromhex(accepted_token)),
            int(value),
        )
        if {len(register.promised.token), len(register.accepted.token)} != {TOKEN_BYTES}:
            raise ValueError("a token of another length")
        return register

    def encode(self) -> str:
        """Text of an answer."""
        return json.dumps(self.as_json())

    @classmethod
    def decode(cls, text: str) -> Register:
        """Raises RemoteProtocolError: the text of the answer is no register."""
        try:
            return cls.from_json(json.loads(text))
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(f"the witness answers with no register: {error}") from error


def newest(registers: list[Register]) -> Register:
    """The register whose value was accepted with the highest ballot, and the highest promise of all."""
    accepted = max(registers, key=lambda each: each.accepted)
    return Register(max(each.promised for each in registers), accepted.accepted, accepted.value)
