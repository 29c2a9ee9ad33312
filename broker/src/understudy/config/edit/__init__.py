"""Changes of broker.xml that leave every other byte of it as it is (ADR 0141).

``paths`` reads the places of changes, ``spans`` finds the elements of a document as ranges of bytes, ``splices`` makes
the new bytes of one change, and ``changes`` applies a set of changes and has the result checked. ``overlay`` is the
file of the changes that a running broker made, which are merged at each reading (ADR 0170).
"""

from understudy.config.edit.changes import (
    Add,
    Change,
    Clear,
    Edited,
    Ensure,
    Merged,
    Remove,
    Set,
    Target,
    difference,
    edit,
    merge,
)

__all__ = [
    "Add",
    "Change",
    "Clear",
    "Edited",
    "Ensure",
    "Merged",
    "Remove",
    "Set",
    "Target",
    "difference",
    "edit",
    "merge",
]
