"""Wildcard matches over addresses: what fits, and which match is the more specific.

A match is made of words between delimiters; ``*`` stands for one word, ``#`` (at the end) for any
number of words, none too (manual, wildcard syntax). Wildcards stand for whole words only.

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
    """Whether an address fits a match. Linear in the length of both."""
    pattern = match.split(wildcards.delimiter)
    words = address.split(wildcards.delimiter)
    if pattern[-1] == wildcards.any_words:
        pattern.pop()
        if len(words) < len(pattern):
            return False
        words = words[: len(pattern)]
    if len(words) != len(pattern):
        return False
    single = wildcards.single_word
    return all(want in (single, word) for want, word in zip(pattern, words, strict=True))


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
