"""The prefix of the names that a broker gives itself: store-and-forward queues, resources of retroactive addresses.

The default of ``internal-naming-prefix`` was another one in earlier versions. Messages wait in queues with that prefix
in their stores, so such a store keeps it until it has no such name any more.
"""

from __future__ import annotations

from typing import Final

from understudy.routing.addresses.directory import Directory

DEFAULT: Final = "$.artemis.internal."
"""Default of ``internal-naming-prefix``, as in Artemis (``ActiveMQDefaultConfiguration``); its manual says otherwise.
"""
FORMER_DEFAULT: Final = "$.activemq.internal."


def internal_prefix(directory: Directory, configured: str) -> str:
    """The prefix of internal names in a store.

    Args:
        directory: Directory with everything that the store has.
        configured: ``internal-naming-prefix``; any other than the default counts.
    """
    if configured == DEFAULT and any(name.startswith(FORMER_DEFAULT) for name in directory.addresses):
        return FORMER_DEFAULT
    return configured
