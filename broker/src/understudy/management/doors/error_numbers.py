"""Error numbers of Artemis' management, for scripts that search for them in the text.

Scripts around the ``artemis`` command, which prints the text of an error and exits with code 0, tell an
existing queue from a real failure by ``AMQ229019`` or ``AMQ229204``. Only the numbers are those of Artemis; the
text after them is ours. Errors without a row are reported without a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.errors import (
    AddressExists,
    AddressHasBindings,
    AddressNotFound,
    AuthenticationFailed,
    BrokerError,
    DivertNotFound,
    InvalidSelector,
    MaxConsumersExceeded,
    NotAuthorized,
    OperationNotFound,
    QueueExists,
    QueueInUse,
    QueueNotFound,
    ResourceNotFound,
    UnexpectedRoutingType,
)

NUMBERS: Final[Mapping[type[BrokerError], int]] = {
    DivertNotFound: 229012,
    QueueNotFound: 229017,
    QueueExists: 229019,
    InvalidSelector: 229020,
    QueueInUse: 229025,
    AuthenticationFailed: 229031,
    NotAuthorized: 229032,
    ResourceNotFound: 229067,
    OperationNotFound: 229069,
    MaxConsumersExceeded: 229200,
    AddressNotFound: 229203,
    AddressExists: 229204,
    AddressHasBindings: 229205,
    UnexpectedRoutingType: 229207,
}


def numbered(error: BrokerError, text: str) -> str:
    """The text of an error, preceded by its number if it has one."""
    number = NUMBERS.get(type(error))
    return text if number is None else f"AMQ{number}: {text}"
