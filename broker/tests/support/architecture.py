"""The source tree as modules and imports, and lists of exceptions that only shrink (ADR 0033).

Modules are parsed with stdlib ``ast``; nothing is imported. ``known.toml`` holds the entries that are above a limit
today. A test fails when something new is above it, when a recorded number has grown, and also when a number could be
lower or an entry is not needed any more, so the file shrinks with the code. ``make architecture`` lowers the numbers,
removes unneeded exceptions and writes the public surface anew. It never adds or raises anything in ``known.toml``: that
is done by hand, with a reason in the commit.
"""

from __future__ import annotations

import ast
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "broker" / "src" / "understudy"
TABLES = ROOT / "broker" / "tests" / "unit" / "architecture"
KNOWN = TABLES / "known.toml"
LOWER = "run `make architecture`, which lowers it"

_KNOWN_HEAD = """\
# Entries above a limit of the architecture test today; the list only shrinks (ADR 0033).
# `make architecture` lowers numbers and removes entries. Adding or raising one is done by hand and needs a reason.
"""


@dataclass(frozen=True)
class Import:
    """One imported module, or one name imported from a module."""

    line: int
    module: str
    """Full dotted name: ``understudy.store.log.journal`` or ``collections.abc``."""
    name: str | None
    """None for ``import module``."""
    bound: str
    """The name that it has in the importing module."""


@dataclass(frozen=True)
class Module:
    """One module of the package."""

    name: str
    """Dotted, without ``understudy.``: ``store.log.journal``; a package's own module has the package's name."""
    path: Path
    text: str = field(repr=False)

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree."""
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return package_of(self.name)

    def at(self, line: int) -> str:
        """The place as compilers write it."""
        return f"{self.path.relative_to(ROOT)}:{line}"

    @cached_property
    def imports(self) -> list[Import]:
        """All imports, those inside functions and under ``TYPE_CHECKING`` included."""
        return list(_imports(self))

    @cached_property
    def internal(self) -> dict[str, int]:
        """Modules of this project that it imports, by short name, with the line of the first import."""
        found: dict[str, int] = {}
        for each in self.imports:
            target = internal_target(each)
            if target is not None and target != self.name:
                found.setdefault(target, each.line)
        return found


#: Packages of which each subpackage has a level of its own.
DIVIDED = ("cluster",)


def package_of(name: str) -> str:
    """The package of a module that has a level in ``rules.toml``: ``store`` for ``store.log.journal``."""
    first, *inner = name.split(".")
    return f"{first}.{inner[0]}" if first in DIVIDED and inner else first


def _imports(module: Module) -> Iterator[Import]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, None, alias.asname or alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.at(node.lineno)}: relative import"
            for alias in node.names:
                yield Import(node.lineno, node.module or "", alias.name, alias.asname or alias.name)


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by its short name; the package itself is ``understudy``."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "understudy"
        found[name] = Module(name, path, path.read_text())
    return found


@cache
def packages() -> frozenset[str]:
    """Top-level packages and modules, and the subpackages of divided ones."""
    return frozenset(module.package for module in modules().values())


@dataclass(frozen=True)
class Class:
    """One class of the package."""

    module: Module
    node: ast.ClassDef

    @property
    def key(self) -> str:
        """Module and name: ``store.log.journal:Journal``."""
        return f"{self.module.name}:{self.node.name}"


@cache
def classes() -> list[Class]:
    """Every class of the package, those inside functions and other classes included."""
    return [
        Class(module, node) for module in modules().values() for node in module.nodes if isinstance(node, ast.ClassDef)
    ]


@cache
def _top_classes() -> dict[tuple[str, str], Class]:
    return {(each.module.name, each.node.name): each for each in classes() if each.node in each.module.tree.body}


def class_of(name: ast.expr, module: Module) -> Class | None:
    """The class of this project that an expression, for instance a base class, names in a module.

    ``Name``, ``module.Name`` and ``Name[T]`` are followed through imports; None for classes of others.
    """
    if isinstance(name, ast.Subscript):
        name = name.value
    if isinstance(name, ast.Attribute):
        imported = next((each for each in module.imports if each.bound == ast.unparse(name.value)), None)
        target = internal_target(imported) if imported is not None else None
        return _top_classes().get((target, name.attr)) if target is not None else None
    if not isinstance(name, ast.Name):
        return None
    seen: set[str] = set()
    wanted, where = name.id, module
    while where.name not in seen:
        seen.add(where.name)
        found = _top_classes().get((where.name, wanted))
        if found is not None:
            return found
        imported = next((each for each in where.imports if each.bound == wanted and each.name is not None), None)
        if imported is None or (target := internal_target(imported)) is None or imported.name is None:
            return None
        wanted, where = imported.name, modules()[target]
    return None


def internal_target(each: Import) -> str | None:
    """The short name of the imported module of this project; None for other modules."""
    if each.module == "understudy":
        return each.name if each.name in modules() else "understudy"
    if not each.module.startswith("understudy."):
        return None
    short = each.module.removeprefix("understudy.")
    inner = f"{short}.{each.name}"
    return inner if inner in modules() else short


def rules() -> dict[str, object]:
    """``rules.toml``: levels, declared imports, allow-lists, public modules."""
    return tomllib.loads((TABLES / "rules.toml").read_text())


def rewriting() -> bool:
    """Whether this run lowers the recorded numbers and writes the public surface anew."""
    return os.environ.get("ARCHITECTURE") == "rewrite"


def known() -> dict[str, dict[str, int]]:
    """``known.toml`` without the knots: section to entry to recorded number."""
    return {key: value for key, value in tomllib.loads(KNOWN.read_text()).items() if key != "knots"}


def known_knots() -> list[frozenset[str]]:
    """Sets of modules that are allowed to import each other in a circle."""
    return [frozenset(knot) for knot in tomllib.loads(KNOWN.read_text()).get("knots", [])]


def write_known(numbers: Mapping[str, Mapping[str, int]], knots: Iterable[Iterable[str]]) -> None:
    """Write ``known.toml``."""
    lines = [_KNOWN_HEAD, "knots = ["]
    for knot in sorted(map(sorted, knots)):
        lines += ["    [", *(f'        "{name}",' for name in knot), "    ],"]
    lines.append("]")
    for section in sorted(numbers):
        lines += ["", f'["{section}"]', *(f'"{key}" = {number}' for key, number in sorted(numbers[section].items()))]
    KNOWN.write_text("\n".join(lines) + "\n")


def shrinking(section: str, measured: Mapping[str, int], limit: int) -> list[str]:
    """The faults of one section of ``known.toml``; with ``rewriting`` it is lowered first.

    Args:
        section: Section of the file, whose name is also that of the counted quantity in messages.
        measured: Every entry with its number today.
        limit: Up to which an entry needs no exception.
    """
    above = {key: number for key, number in measured.items() if number > limit}
    numbers = known()
    recorded = numbers.get(section, {})
    if rewriting():
        recorded = {key: min(number, above[key]) for key, number in recorded.items() if key in above}
        write_known({**numbers, section: recorded}, known_knots())
    faults = []
    for key in sorted(above.keys() | recorded.keys()):
        now, before = above.get(key), recorded.get(key)
        if before is None:
            faults.append(f"{key}: {now} {section}, at most {limit}")
        elif now is None:
            faults.append(f"{key}: {measured.get(key, 'no')} {section} need no exception any more: {LOWER}")
        elif now > before:
            faults.append(f"{key}: {now} {section}, more than the {before} that known.toml allows")
        elif now < before:
            faults.append(f"{key}: {section} can be lowered from {before} to {now} in known.toml: {LOWER}")
    return faults


def report(faults: Iterable[str]) -> None:
    """Fail with one line for each fault."""
    lines = list(faults)
    assert not lines, "\n" + "\n".join(lines)
