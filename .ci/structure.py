#!/usr/bin/env python3
"""Print the figures of the source tree that reviews compare: lines, modules, classes, protocols, folders, pairs.

    .ci/structure.py                        the figures of this checkout
    .ci/structure.py --baseline f40af71d    beside those of another commit
    .ci/structure.py --json                 one JSON object

Code lines are lines with a token that is no comment and no docstring. A pair is a function for single messages beside
one for runs that does the same; it counts while both exist.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("broker/src/understudy")
PARAMETERS_MAX = 7
#: Names of functions and classes for single messages and for runs (review of f40af71d, section 1.2).
PAIRS = (
    ("send_requests:SendRequests.send", "send_requests:SendRequests.send_batch"),
    ("post_office:PostOffice.send", "batch:BatchSends.take"),
    ("acceptance:Acceptance.charge", "batch:charge_runs"),
    ("memory:AddressMemory.charge", "memory:AddressMemory.charge_runs"),
    ("acceptance:Acceptance.enqueue", "batch:enqueue_together"),
    ("acceptance:Acceptance.discard", "batch:discard_together"),
    ("acceptance:Acceptance.remember", "batch:_remember"),
    ("acceptance:Acceptance.move", "moves:RunMoves.move"),
    ("message_store:MessageStore.store_message", "message_run:append_run"),
    ("queue:Queue.add", "queue:Queue.add_run"),
    ("paging:Paging.page_out", "paging:Paging.page_out_run"),
    ("transaction:Transaction.staged", "transaction:Transaction.staged_run"),
    ("target:TargetSession.send", "target:TargetSession.send_together"),
    ("answers:SessionAnswers.answer_one", "answers:SessionAnswers.answer_run"),
)


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Classes, functions and methods of a module with their qualified names."""

    def walk(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield f"{prefix}{child.name}", child
                yield from walk(child, f"{prefix}{child.name}.")
            else:
                yield from walk(child, prefix)

    return walk(tree, "")


def code_lines(text: str, tree: ast.Module) -> int:
    """Lines with a token that is neither a comment nor part of a docstring."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - docstrings)


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Parameters without ``self`` and ``cls``; 0 for a command, whose parameters are its options."""
    if any("click" in ast.unparse(each) or ".command" in ast.unparse(each) for each in node.decorator_list):
        return 0
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in given)


def measure(root: Path) -> dict[str, int | str]:
    """The figures of the package below ``root``.

    Raises:
        FileNotFoundError: there is no package.
    """
    source = root / PACKAGE
    if not source.is_dir():
        raise FileNotFoundError(f"{source} is no directory")
    figures: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    names: set[str] = set()
    for path in sorted(source.rglob("*.py")):
        text = path.read_text()
        tree = ast.parse(text)
        parts = path.relative_to(source).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        folders[str(path.parent.relative_to(source))] += path.name != "__init__.py"
        figures["source lines"] += text.count("\n")
        figures["code lines"] += code_lines(text, tree)
        figures["modules"] += 1
        for name, node in functions(tree):
            names.add(f"{module}:{name}")
            if isinstance(node, ast.ClassDef):
                figures["classes"] += 1
                figures["protocols"] += any(ast.unparse(base).split("[")[0] == "Protocol" for base in node.bases)
            else:
                figures["functions with 8 and more parameters"] += parameters(node) > PARAMETERS_MAX
    # modules move between folders, so only the name of a module itself counts
    short = {name[name.rfind(".", 0, name.index(":")) + 1 :] for name in names}
    figures["pairs for messages and runs"] = sum(one in short and other in short for one, other in PAIRS)
    folder, width = folders.most_common(1)[0]
    return {**figures, "widest folder": width, "its name": folder}


def at_commit(commit: str) -> dict[str, int | str]:
    """The figures of the package at a commit.

    Raises:
        SystemExit: git does not know the commit.
    """
    done = subprocess.run(["git", "archive", commit, str(PACKAGE)], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"structure: {done.stderr.decode().strip()}; give a commit that this clone has")
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(scratch)
        return measure(Path(scratch))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", metavar="COMMIT", help="print the figures of this commit, too")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    given = parser.parse_args()
    columns = {} if given.baseline is None else {given.baseline: at_commit(given.baseline)}
    columns["now"] = measure(ROOT)
    if given.json:
        print(json.dumps(columns, indent=1))
        return
    print(f"{'':40}" + "".join(f"{each[:16]:>18}" for each in columns))
    for name in columns["now"]:
        print(f"{name:40}" + "".join(f"{found[name]:>18}" for found in columns.values()))


if __name__ == "__main__":
    main()
