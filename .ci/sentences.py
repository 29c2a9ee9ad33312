#!/usr/bin/env python3
"""Draw texts of the broker's source at random, for a reader to judge (docs/build/style.md).

    .ci/sentences.py                          60 texts, from a new seed, which the first line prints
    .ci/sentences.py --seed 7 --count 20      the same texts each time, as long as the source stays the same
    .ci/sentences.py --seed 7 --under store   only those of one package

The texts are docstrings, comments, and messages of errors and log lines; a docstring has the name that it
documents. A text fails when a reader who has not seen the code beside it cannot say which object it is about or what
that object does.
"""

from __future__ import annotations

import argparse
import ast
import io
import random
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "broker/src/understudy"
#: Comments for tools, not for readers.
_DIRECTIVE = re.compile(r"#\s*(?:noqa|type:|fmt:|pragma|!)")
_RULE = re.compile(r"#:?\s*-{2,}")


@dataclass(frozen=True)
class Text:
    """A docstring, a comment of one or more lines, or the message of an error or of a log line."""

    kind: str
    line: int
    text: str
    name: str = ""
    """Documented module, class, function or attribute of a docstring, as ``help`` shows it."""


def docstrings(node: ast.AST, inside: str = "") -> Iterator[Text]:
    """Docstrings of modules, classes and functions, and the strings after attributes."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        inside = f"{inside}.{node.name}".lstrip(".")
    body = getattr(node, "body", None)
    before = ""
    for statement in body if isinstance(body, list) else ():
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield Text("docstring", value.lineno, value.value.strip(), f"{inside}.{before}".strip("."))
        targets = [*getattr(statement, "targets", ()), getattr(statement, "target", None)]
        before = ast.unparse(targets[0]).removeprefix("self.") if targets[0] is not None else ""
    for child in ast.iter_child_nodes(node):
        yield from docstrings(child, inside)


def messages(tree: ast.Module) -> Iterator[Text]:
    """First arguments of raised errors and of log calls that are text with a space."""
    for node in ast.walk(tree):
        call = node.exc if isinstance(node, ast.Raise) else node
        if not isinstance(call, ast.Call) or not call.args:
            continue
        name = ast.unparse(call.func)
        raised = isinstance(node, ast.Raise)
        if not raised and not re.search(r"\blog\w*\.(?:debug|info|warning|error|exception)$", name):
            continue
        if isinstance(call.args[0], ast.Constant | ast.JoinedStr):
            text = ast.unparse(call.args[0])
            if " " in text:
                yield Text("error" if raised else "log line", call.lineno, text)


def comments(source: str) -> Iterator[Text]:
    """Comments; those on lines that follow each other are one text."""
    first, lines, last = 0, [], -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string) or _RULE.match(token.string):
            continue
        if token.start[0] != last + 1 or token.line.strip() != token.string.strip():
            if lines:
                yield Text("comment", first, " ".join(lines))
            first, lines = token.start[0], []
        lines.append(token.string.lstrip("#: "))
        last = token.start[0]
    if lines:
        yield Text("comment", first, " ".join(lines))


def texts(under: str) -> list[tuple[str, Text]]:
    """Every text below a package with the path of its module."""
    found = []
    for path in sorted((PACKAGE / under).rglob("*.py")):
        source = path.read_text()
        tree = ast.parse(source)
        name = str(path.relative_to(PACKAGE))
        found += [(name, text) for text in (*docstrings(tree), *comments(source), *messages(tree))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(100_000))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--under", default="", help="package below understudy")
    options = parser.parse_args()
    every = texts(options.under)
    drawn = random.Random(options.seed).sample(every, min(options.count, len(every)))
    print(f"seed {options.seed}: {len(drawn)} of {len(every)} texts")
    for number, (path, text) in enumerate(drawn, 1):
        print(f"\n{number:2}. {path}:{text.line} ({text.kind}{' of ' if text.name else ''}{text.name})")
        print("    " + "\n    ".join(text.text.splitlines()))


if __name__ == "__main__":
    main()
