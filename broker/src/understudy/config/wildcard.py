"""Wildcard matches over addresses: what fits, and which match is the more specific.

A match is made of words between delimiters; ``*`` stands for one word, ``#`` for any number of
words, none too (manual, wildcard syntax). Wildcards stand for whole words only. Matches of settings
have ``#`` at the end only; a queue's address may have it anywhere.

Not here: routing by wildcard, and what the matches are for.
"""

from __future__ import annotations

from understudy.config.model import WildcardConfiguration

DEFAULT_WILDCARDS = WildcardConfiguration()


def check_match(match: str, wildcards: WildcardConfiguration = DEFAULT_WILDCARDS) -> str | None:
    """What is wrong with a match, or None.

    ``#`` anywhere but at the end is refused as in Artemis; a wildcard inside a longer word too,
    because it would match nothing while looking as if it did.
    """
    words = match.split(wildcards.delimiter)
    if not match:
        return "the match is empty"
    for place, word in enumerate(words):
        if word == wildcards.any_words and place != len(words) - 1:
            return f"{wildcards.any_words!r} is only possible at the end"
        for wild in (wildcards.any_words, wildcards.single_word):
            if wild in word and word != wild:
                return f"{wild!r} stands for whole words, not for a part of {word!r}"
    return None


def is_wild(match: str, wildcards: WildcardConfiguration = DEFAULT_WILDCARDS) -> bool:
    """Whether a match has a wildcard in it."""
    words = match.split(wildcards.delimiter)
    return wildcards.any_words in words or wildcards.single_word in words


def matches(match: str, address: str, wildcards: WildcardConfiguration = DEFAULT_WILDCARDS) -> bool:
    """Whether an address fits a match. Without going back: each part between two ``#`` is found where it comes
    first, so the cost is at most the product of both lengths, however many wildcards there are.
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


def _parts(pattern: list[str], wildcards: WildcardConfiguration) -> list[list[str]]:
    """What stands before, between and behind each ``#``."""
    parts: list[list[str]] = [[]]
    for word in pattern:
        if word == wildcards.any_words:
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def _fit(part: list[str], words: list[str], start: int, wildcards: WildcardConfiguration) -> bool:
    """Whether the words from there on are those of a part without ``#``."""
    single = wildcards.single_word
    return all(want in (single, words[start + place]) for place, want in enumerate(part))


def specificity(match: str, wildcards: WildcardConfiguration = DEFAULT_WILDCARDS) -> tuple[object, ...]:
    """Sort key among matches that fit one address: the most specific comes first.

    The order is that of Artemis (HierarchicalObjectRepository): no wildcard; ``*`` only, where the
    one with a plain word further left wins; with ``#``, where the longer text wins. Ties, which
    Artemis leaves open, are settled by fewer ``*`` and then by the text.
    """
    words = match.split(wildcards.delimiter)
    singles = tuple(word == wildcards.single_word for word in words)
    if wildcards.any_words in words:
        return (2, -len(match), sum(singles), singles, match)
    if any(singles):
        return (1, 0, 0, singles, match)
    return (0, 0, 0, singles, match)
