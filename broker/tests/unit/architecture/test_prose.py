"""Riddling words in prose, and public functions without a docstring, only become fewer.

Counted in docstrings, comments and texts of ``broker/src`` and ``broker/tests``, in the names of tests, and in pages:

- ``people``: words for persons (nobody, somebody, whoever) where the subject is a message, a queue or a connection;
- ``figures``: metaphors and idioms (behind for after, room for space, "is told" for a parameter or a call);
- ``openings``: docstrings that begin with a relative clause ("What ...", "Whose ...") instead of a noun or verb;
- ``clauses``: relative clauses in the place of a noun ("what came before", "what is left");
- ``fragments``: docstrings, and entries of their ``Args``, that begin with a preposition, a pronoun or a conjunction
  ("Of the node.", "As in management.", "It waits ...") and so have their subject elsewhere; also those of ``.ci``,
  ``plugins``, ``roles`` and ``tests``;
- ``repeats``: entries of ``Args`` that say nothing beyond the name ("clock: The clock.", "office: Of the node."), in
  the same folders as ``fragments``;
- ``inherited``: docstrings of methods of the package that only point to the method they override ("See ``Port``.").

``prose.toml`` holds the number of each package today. A test fails when a number grows, not when it could be lower, so
that two changes that lower numbers do not conflict; ``make architecture`` writes the lower numbers.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from support.architecture import ROOT, TABLES, Module, modules, report, rewriting

TABLE = TABLES / "prose.toml"
#: Pages, without the one that lists the words.
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "style.md"),
]
#: Folders beside the package whose docstrings are checked too.
BESIDE = [ROOT / "broker" / "tests", *(ROOT / name for name in (".ci", "plugins", "roles", "tests"))]
HEAD = """\
# Riddling sentences and public functions without a docstring, counted by test_prose.py; the numbers only shrink.
# `make architecture` lowers them. A number is raised by hand and needs its reason in the commit.
"""

RIDDLES = {
    "people": re.compile(r"\b(?:nobody|somebody|whoever|everybody|anybody)\b|(?<=[a-z][.:;] )Who\b(?![^.]*\?)", re.I),
    "figures": re.compile(
        r"\bfor ever\b|(?<!fall )(?<!falls )(?<!fell )(?<!lags )(?<!left )(?<!leaves )\bbehind\b"
        r"|\b(?:is|are|was|were|be|been|being|has|have|had) told\b|\bthe long way\b|\bway (?:in|out)\b(?! which)"
        r"|\bwhat is not there\b|\brooms?\b|\bhouses?\b|\bof late\b|\bin vain\b|\btales?\b|\bmend(?:s|ed)?\b"
        r"|\ball the same\b|\blooks? on\b|\blent\b|\bmet a bug\b|\bin doors\b"
    ),
    "clauses": re.compile(
        r"\b[Ww]hat (?:is|was|were|are|has|had|came|comes|goes|went|waits|waited|can|cannot|could|may|must|needs)"
        r" (?!wrong\b|missing\b|in it\b)(?![^.]*\?)"
        r"|\b[Ww]hat (?:belongs|remains|remained|nobody|no|nothing|others?|would|such|it|they) (?![^.]*\?)"
    ),
}
KINDS = (*RIDDLES, "openings", "fragments", "repeats", "inherited", "undocumented")
_IMPLEMENTS = re.compile(r"[Ii]mplements ((?:``[\w.]+``(?:, and |, | and )?)+)")
OPENING = re.compile(r"\s*(?:What|Who|Whose|Whom|That)\b(?!.*\?\s*$)")
FRAGMENT = re.compile(r"\s*(?:Of|Its|It|As|By|For|In|Those|With|From|So)\b")
_ARGUMENT = re.compile(r"^ *\*{0,2}(\w+): +(.+)$")
#: "Of the node.": which object it belongs to is plain from the function or the type.
_GENITIVE = re.compile(r"(?:Of|Its|For)(?: \w+){1,3}\.$")
_POINTER = re.compile(r"\s*See ``[\w.]+``\.?\s*$")
#: Words that add nothing to the name of a parameter.
_FILLING = frozenset({"the", "a", "an", "of", "its", "this", "that", "is", "to", "be", "used", "given"})
#: Files without a match have neither fragments nor repeats and need not be parsed.
_FRAGMENT_ANYWHERE = re.compile(r"(?:\"{3}|'{3}|^\s*r?[\"'])" + FRAGMENT.pattern + r"|Args:\n", re.M)
_OPENING_ANYWHERE = re.compile(r'"""\s*(?:What|Who|Whose|Whom|That)\b')


@cache
def prose(path: Path) -> tuple[tuple[int, str, bool], ...]:
    """Texts of a module, each with its first line and whether it is a docstring: strings that have a space, comments,
    and the names of test functions as words."""
    text = path.read_text()
    if not any(pattern.search(text.replace("_", " ")) for pattern in (*RIDDLES.values(), _OPENING_ANYWHERE)):
        return ()
    found: list[tuple[int, str, bool]] = []
    inside: set[int] = set()
    docstrings: set[int] = set()
    for node in parsed(path, text):
        if isinstance(node, ast.Expr):
            docstrings.add(id(node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if " " in node.value:
                found.append((node.lineno, node.value, id(node) in docstrings))
            inside.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found.append((node.lineno, node.name.replace("_", " "), False))
    for number, line in enumerate(text.splitlines(), 1):
        if "#" in line and number not in inside and (match := re.search(r"(?:^|\s)#:? (.*)", line)):
            found.append((number, match[1], False))
    return tuple(found)


def parsed(path: Path, text: str) -> Iterable[ast.AST]:
    """Every node, a parent before its children; modules of the package are parsed once for all tests."""
    known = {module.path: module for module in modules().values()}
    return known[path].nodes if path in known else ast.walk(ast.parse(text))


def riddles(text: str, docstring: bool) -> Iterator[tuple[str, str, int]]:
    """Kind, word and offset of each riddling word of a text; names in backquotes are left out."""
    text = re.sub(
        r"``?[^`\
]+``?",
        lambda match: " " * len(match[0]),
        text,
    )
    for kind, pattern in RIDDLES.items():
        for match in pattern.finditer(text):
            yield kind, match[0], match.start()
    if docstring and OPENING.match(text):
        yield "openings", text.split()[0], 0


def docstrings(module: Module) -> Iterator[tuple[ast.AST | None, ast.Constant]]:
    """Docstrings of a module with the function, class or module that has them, and texts after attributes with None."""
    for node in module.nodes:
        body = getattr(node, "body", None)
        for place, statement in enumerate(body if isinstance(body, list) else ()):
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield node if place == 0 and not isinstance(node, ast.If) else None, value


def entries(text: str) -> Iterator[tuple[str, str, bool]]:
    """Name, first line and whether that is all, of each entry of the ``Args`` of a docstring."""
    _, _, arguments = text.partition("Args:\n")
    lines = arguments.partition("\n\n")[0].splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    for place, line in enumerate(lines):
        match = _ARGUMENT.match(line)
        following = lines[place + 1] if place + 1 < len(lines) else ""
        if match is not None and len(line) - len(line.lstrip()) <= margin:
            yield match[1], match[2], not following.startswith(" " * (margin + 1))


def repeats(text: str) -> Iterator[str]:
    """Parameters of a docstring whose description adds nothing to the name."""
    for name, line, whole in entries(text):
        words = set(re.findall(r"[a-z0-9]+", line.lower())) - _FILLING
        if whole and (words <= {*name.split("_"), name + "s"} or _GENITIVE.match(line)):
            yield name


def incomplete(module: Module) -> Iterator[tuple[int, str, str]]:
    """Line, kind and beginning of each docstring, or entry of its ``Args``, that is a fragment or repeats a name."""
    for _owner, doc in docstrings(module):
        text = str(doc.value)
        if FRAGMENT.match(text):
            yield doc.lineno, "fragments", " ".join(text.split()[:5])
        for name, line, _ in entries(text):
            if FRAGMENT.match(line):
                yield doc.lineno, "fragments", f"{name}: {line}"
        for name in repeats(text):
            yield doc.lineno, "repeats", name


def beside() -> Iterator[Module]:
    """Modules of the tests, the scripts and the Ansible collection that may have fragments or repeats."""
    for top in BESIDE:
        for path in sorted(top.rglob("*.py")):
            text = path.read_text()
            if _FRAGMENT_ANYWHERE.search(text):
                yield Module(path.relative_to(ROOT).as_posix(), path, text)


def folder(path: Path) -> str:
    """The package or folder to which a file's numbers are added."""
    parts = path.relative_to(ROOT).parts
    if parts[:3] == ("broker", "src", "understudy"):
        return "src/" + parts[3]
    if parts[:2] == ("broker", "tests"):
        return "/".join(parts[1 : 4 if parts[2] == "unit" else 3])
    return "/".join(parts[:2])


@cache
def occurrences() -> dict[str, dict[str, list[str]]]:
    """Kind to package to places."""
    found: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}

    def count(path: Path, line: int, kind: str, word: str) -> None:
        found[kind].setdefault(folder(path), []).append(f"{path.relative_to(ROOT)}:{line}: {word}")

    for top in ("src", "tests"):
        for path in sorted((ROOT / "broker" / top).rglob("*.py")):
            if path == Path(__file__):
                continue
            for line, text, docstring in prose(path):
                for kind, word, offset in riddles(text, docstring):
                    count(path, line + text.count("\n", 0, offset), kind, word)
    for path in PAGES:
        for line, text in enumerate(path.read_text().splitlines(), 1):
            for kind, word, _offset in riddles(text, docstring=False):
                count(path, line, kind, word)
    for module in (*modules().values(), *beside()):
        for line, kind, word in incomplete(module):
            count(module.path, line, kind, word)
    for module in modules().values():
        for owner, doc in docstrings(module):
            text = str(doc.value)
            if isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef) and _POINTER.match(text):
                count(module.path, doc.lineno, "inherited", owner.name)
        for name, node in public_functions(module.tree):
            if ast.get_docstring(node) is None:
                count(module.path, node.lineno, "undocumented", name)
    return found


def public_functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods of public classes whose name has no leading underscore. Left out: overloads, setters, and
    methods that implement a documented method of a base class, or of a class named in the docstring of their class
    ("Implements ``ports.File``", "implements ``a.A``, ``b.B`` and ``c.C``")."""
    scopes: list[tuple[str, list[ast.stmt], frozenset[str]]] = [("", tree.body, frozenset())]
    while scopes:
        prefix, body, inherited = scopes.pop()
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                scopes.append((f"{prefix}{node.name}.", node.body, documented_in_bases(node.name)))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                marks = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
                if not marks & {"overload", "setter"} and node.name not in inherited:
                    yield prefix + node.name, node


@cache
def classes() -> dict[str, list[ast.ClassDef]]:
    """Every class of the package by its name."""
    found: dict[str, list[ast.ClassDef]] = {}
    for module in modules().values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(node)
    return found


@cache
def documented_in_bases(name: str) -> frozenset[str]:
    """Names of the methods with a docstring in a base class, or in a class that the docstring says is implemented.
    Base classes of asyncio are looked up too.
    """
    found: set[str] = set()
    for each in classes().get(name, []):
        bases = [ast.unparse(base).partition("[")[0] for base in each.bases]
        implemented = " ".join(_IMPLEMENTS.findall(" ".join((ast.get_docstring(each) or "").split())))
        for base in bases + re.findall(r"[\w.]+\w", implemented):
            short = base.rpartition(".")[2]
            if base.startswith("asyncio."):
                methods = inspect.getmembers(getattr(asyncio, short), inspect.isroutine)
                found.update(method for method, value in methods if value.__doc__)
            elif short != name:
                found |= documented_in_bases(short)
                for parent in classes().get(short, []):
                    found.update(
                        node.name
                        for node in parent.body
                        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node)
                    )
    return frozenset(found)


@pytest.mark.parametrize("kind", KINDS)
def test_riddles_become_fewer(kind: str) -> None:
    numbers = tomllib.loads(TABLE.read_text())
    now = {package: len(places) for package, places in occurrences()[kind].items()}
    if rewriting():
        recorded = numbers.get(kind, {})
        numbers[kind] = {package: min(recorded[package], now[package]) for package in recorded if now.get(package)}
        write(numbers)
    report(
        f"{package}: {number} {kind}, more than the {numbers.get(kind, {}).get(package, 0)} of prose.toml:\n  "
        + "\n  ".join(occurrences()[kind][package])
        for package, number in sorted(now.items())
        if number > numbers.get(kind, {}).get(package, 0)
    )


def write(numbers: dict[str, dict[str, int]]) -> None:
    lines = [HEAD]
    for kind in sorted(numbers):
        lines += [f"[{kind}]", *(f'"{key}" = {number}' for key, number in sorted(numbers[kind].items())), ""]
    TABLE.write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "docstring", "expected"),
    [
        ("Nobody waits for it.", False, ["people"]),
        ("It comes behind the others. Who waits is told so.", False, ["people", "figures", "figures"]),
        ("Until there is room in the house.", False, ["figures", "figures"]),
        ("What a handler gets.", True, ["openings"]),
        ("What a handler gets.", False, []),
        ("The backup falls behind; nothing is left behind.", True, []),
        ("Number of bytes of the message.", True, []),
        ("Drop what was delivered.", True, ["clauses"]),
        ("The message says what is wrong with it.", False, []),
    ],
)
def test_riddling_words_are_found(text: str, docstring: bool, expected: list[str]) -> None:
    assert [kind for kind, _word, _offset in riddles(text, docstring)] == expected


def test_entries_that_repeat_the_name_are_found() -> None:
    text = """Args:
        clock: The clock.
        limit_ms: -1 means no limit.
        lock_state: State of the lock.
        office: Of the node.
        journal: Its journal
            and the rest of a sentence.
    """
    assert list(repeats(text)) == ["clock", "lock_state", "office"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""From the inventory."""', [(1, "fragments", "From the inventory.")]),
        ("class A:\n    size = 0\n    'Of the file.'", [(3, "fragments", "Of the file.")]),
        ('def f():\n    """Args:\n    port: As given.\n    """', [(2, "fragments", "port: As given.")]),
        ('def f():\n    """Args:\n    port: The port.\n    """', [(2, "repeats", "port")]),
        ('def f():\n    """Port of a node. As given."""', []),
    ],
)
def test_fragments_are_found(text: str, expected: list[tuple[int, str, str]]) -> None:
    assert list(incomplete(Module("m", ROOT / "m.py", text))) == expected
    assert not expected or _FRAGMENT_ANYWHERE.search(text)
