"""One target under atheris: ``python -m fuzz.coverage_guided TARGET [libFuzzer options] DIRECTORY``.

A process of its own, for libFuzzer never returns. Our code is instrumented while it is imported, so
nothing of it may be imported before. Exit code 0: time is over; other: an input was written to the
``-artifact_prefix`` given.
"""

from __future__ import annotations

import logging
import sys


def main() -> None:
    """Run until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["understudy"], enable_loader_override=False):
        from fuzz.catalogue import TARGETS
    from fuzz.target import check

    # each refusal is logged; the texts are of no use here
    logging.getLogger("understudy").setLevel(logging.CRITICAL)
    target = TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], lambda data: check(target, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
