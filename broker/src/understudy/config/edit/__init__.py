"""Changes of broker.xml that leave every other byte of it as it is (ADR 0141).

``paths`` reads the places of changes, ``spans`` finds the elements of a document as ranges of bytes, ``splices`` makes
the new bytes of one change, and ``changes`` applies a set of changes and has the result checked.
"""

from understudy.config.edit.changes import Add, Change, Edited, Remove, Set, difference, edit

__all__ = ["Add", "Change", "Edited", "Remove", "Set", "difference", "edit"]
