"""Wildcards in addresses: matching, and which of several matches is more specific.

A match is made of words between delimiters; ``*`` stands for one word, ``#`` for any number of
words, including none (manual, wildcard syntax). In the address of a queue a wildcard is a whole word, and ``#`` may be
anywhere. In matches of settings ``#`` is only at the end, ``*`` in a longer word stands for one or more characters of
it, and ``a#`` is ``a.#`` (``Match`` of Artemis).

Not here: routing by wildcard, and the objects to which matches belong.
"""

from __future__ import annotations

from typing import Final

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Wildcards:
    """Characters of wildcards; the defaults are those of Artemis."""

    routing_enabled: bool = True
    delimiter: str = "."
    any_words: str = "#"
    single_word: str = "*"
    literal_markers: str = ""
    """Two characters around the match of an address setting in which wildcards mean themselves; empty = none."""
    uuid_namespace: str = ""
    """Words before a name that is a UUID, under which its settings are looked up; empty = the name itself."""


DEFAULT_WILDCARDS = Wildcards()
_HEX: Final = frozenset("0123456789abcdefABCDEF-")


def check_match(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> str | None:
    """Reason why a match of settings is invalid, or None: ``#`` is refused except at the end, as in Artemis."""
    if not match:
        return "the match is empty"
    if wildcards.any_words in match[:-1]:
        return f"{wildcards.any_words!r} is only possible at the end"
    return None


def is_wild(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> bool:
    """Whether an address contains a wildcard."""
    if wildcards.any_words not in match and wildcards.single_word not in match:
        return False
    words = match.split(wildcards.delimiter)
    return wildcards.any_words in words or wildcards.single_word in words


def is_pattern(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> bool:
    """Whether a match of settings contains a wildcard, perhaps in a longer word."""
    return wildcards.any_words in match or wildcards.single_word in match


def prefix_of(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> str:
    """Prefix of all addresses that a match of settings fits: the first word up to a wildcard."""
    first = match.split(wildcards.delimiter, 1)[0]
    return first.partition(wildcards.any_words)[0].partition(wildcards.single_word)[0]


def literal_of(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> str | None:
    """The literal address of a match between literal markers; None for any other match."""
    markers = wildcards.literal_markers
    if markers and len(match) > 1 and match[0] == markers[0] and match[-1] == markers[1]:
        return match[1:-1]
    return None


def looked_up_name(address: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> str:
    """The name under which the settings of an address are looked up: if the address is a UUID, as clients name
    temporary queues, it is preceded by the ``uuid-namespace``.
    """
    if wildcards.uuid_namespace and _is_uuid(address):
        return f"{wildcards.uuid_namespace}{wildcards.delimiter}{address}"
    return address


def _is_uuid(name: str) -> bool:
    groups = name.split("-")
    return [len(group) for group in groups] == [8, 4, 4, 4, 12] and _HEX.issuperset(name)


def fits(match: str, address: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> bool:
    """Whether settings with this match are for an address."""
    any_words, delimiter = wildcards.any_words, wildcards.delimiter
    if len(match) > 1 and match[-1] == any_words and match[-2] != delimiter:
        match = f"{match[:-1]}{delimiter}{any_words}"
    pattern, words = match.split(delimiter), address.split(delimiter)
    fixed = pattern[:-1] if pattern[-1] == any_words else pattern
    rest = words[len(fixed) :]
    if len(words) < len(fixed) or (rest and fixed is pattern) or (fixed and rest == [""]):
        return False
    single = wildcards.single_word
    return all(_fits_word(want, word, single) for want, word in zip(fixed, words, strict=False))


def _fits_word(want: str, word: str, single: str) -> bool:
    """Whether a word is like the one of a match. Each part between two ``*`` is found at its first occurrence, so there
    is no backtracking.
    """
    if want == single:
        return bool(word)
    if want == word:
        return True
    first, *rest = want.split(single)
    if not rest or not word.startswith(first):
        return False
    *between, last = rest
    # each * stands for one character at least
    end, place = len(word) - len(last), len(first) + 1
    for part in between:
        found = word.find(part, place, end)
        if found < 0:
            return False
        place = found + len(part) + 1
    return place <= end and word.endswith(last)


def matches(match: str, address: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> bool:
    """Whether an address is routed to one with wildcards. There is no backtracking: each part between two ``#`` is
    found at its first occurrence, so the cost is at most the product of both lengths for any number of wildcards.
    """
    pattern = match.split(wildcards.delimiter)
    words = address.split(wildcards.delimiter)
    if wildcards.any_words not in pattern:
        return len(words) == len(pattern) and _fit(pattern, words, 0, wildcards)
    first, *between, last = _parts(pattern, wildcards)
    end = len(words) - len(last)
    if end < len(first) or not _fit(first, words, 0, wildcards) or not _fit(last, words, end, wildcards):
        return False
    start = len(first)
    for part in between:
        while start + len(part) <= end and not _fit(part, words, start, wildcards):
            start += 1
        start += len(part)
        if start > end:
            return False
    return True


def _parts(pattern: list[str], wildcards: Wildcards) -> list[list[str]]:
    """The parts before, between and after each ``#``."""
    parts: list[list[str]] = [[]]
    for word in pattern:
        if word == wildcards.any_words:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _fit(part: list[str], words: list[str], start: int, wildcards: Wildcards) -> bool:
    """Whether the words from ``start`` on match a part without ``#``."""
    single = wildcards.single_word
    return all(want in (single, words[start + place]) for place, want in enumerate(part))


def specificity(match: str, wildcards: Wildcards = DEFAULT_WILDCARDS) -> tuple[object, ...]:
    """Sort key among matches of settings that fit one address: the most specific comes first.

    The order is that of Artemis (HierarchicalObjectRepository): no wildcard; a literal match; ``*`` only, where the
    one with a plain word further left wins; with ``#``, where the longer text wins. Ties, which
    Artemis leaves open, are settled by fewer ``*`` and then by the text.
    """
    if literal_of(match, wildcards) is not None:
        return (0, 1, 0, (), match)
    words = match.split(wildcards.delimiter)
    singles = tuple(word == wildcards.single_word for word in words)
    if wildcards.any_words in match:
        return (2, -len(match), sum(singles), singles, match)
    if wildcards.single_word in match:
        return (1, 0, 0, singles, match)
    return (0, 0, 0, singles, match)
