"""LIKE patterns, matched without backtracking and without ``re``.

Invariant: every character of a text is examined once, for any pattern.
"""

from __future__ import annotations


class LikePattern:
    """A LIKE pattern: ``%`` is any text, ``_`` one character, the escape makes either literal.

    The pieces between ``%`` have a fixed length, so the leftmost match of each piece is sufficient
    and no backtracking is needed. A piece without ``_`` is found by ``str.find``; one with ``_`` by
    the Shift-And method, which examines every character of the text once.
    """

    __slots__ = ("_first", "_last", "_length", "_middle", "_one_piece", "searches")

    def __init__(self, pattern: str, escape: str = "") -> None:
        pieces: list[list[str | None]] = [[]]
        offset = 0
        while offset < len(pattern):
            character = pattern[offset]
            if character == escape and pattern[offset + 1 : offset + 2] in ("%", "_", escape):
                # Before any other character, and at the end, the escape character is literal (as in Artemis).
                offset += 1
                pieces[-1].append(pattern[offset])
            elif character == "%":
                pieces.append([])
            else:
                pieces[-1].append(None if character == "_" else character)
            offset += 1
        self._one_piece = len(pieces) == 1
        self._first = _Piece(pieces[0])
        self._last = _Piece(pieces[-1])
        self._middle = tuple(_Piece(piece) for piece in pieces[1:-1] if piece)
        self._length = sum(map(len, pieces))
        self.searches = any(None in piece for piece in pieces)
        """Whether matching examines single characters (Shift-And) instead of using ``str.find``."""

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the whole text."""
        if self._one_piece:
            return len(text) == self._length and self._first.fits(text, 0)
        end = len(text) - self._last.length
        if len(text) < self._length or not self._first.fits(text, 0) or not self._last.fits(text, end):
            return False
        offset = self._first.length
        for piece in self._middle:
            found = piece.find(text, offset, end)
            if found < 0:
                return False
            offset = found + piece.length
        return True


class _Piece:
    """Consecutive characters of a pattern; None matches any character."""

    __slots__ = ("_any", "_characters", "_literal", "_masks", "length")

    def __init__(self, characters: list[str | None]) -> None:
        self.length = len(characters)
        self._characters = characters
        literal = [character for character in characters if character is not None]
        self._literal = "".join(literal) if len(literal) == len(characters) else None
        self._any = sum(1 << place for place, character in enumerate(characters) if character is None)
        self._masks: dict[str, int] = {}
        if self._literal is None:
            for place, character in enumerate(characters):
                if character is not None:
                    self._masks[character] = self._masks.get(character, self._any) | 1 << place

    def fits(self, text: str, offset: int) -> bool:
        """Whether the piece matches at an offset; the text must be long enough."""
        if self._literal is not None:
            return text.startswith(self._literal, offset)
        return all(want is None or want == text[offset + place] for place, want in enumerate(self._characters))

    def find(self, text: str, start: int, end: int) -> int:
        """The leftmost offset at which it matches within ``text[start:end]``; -1 if there is none."""
        if self._literal is not None:
            return text.find(self._literal, start, end)
        goal, state = 1 << (self.length - 1), 0
        masks, wild = self._masks, self._any
        for place in range(start, end):
            state = (state << 1 | 1) & masks.get(text[place], wild)
            if state & goal:
                return place - self.length + 1
        return -1
