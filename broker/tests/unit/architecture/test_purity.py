"""Pure packages compute; only the shells reach the world (docs/build/architecture.md).

A pure package imports what ``rules.toml`` lists and nothing else, has no coroutine, opens no file under any name, and
evaluates no text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.architecture import SOURCE, Import, Module, modules, report, rules

RULES: dict[str, object] = rules()["purity"]  # type: ignore[assignment]
SHELLS: list[str] = RULES["shells"]  # type: ignore[assignment]
SHELL_MODULES: list[str] = RULES["shell_modules"]  # type: ignore[assignment]
EVERY: list[str] = RULES["every"]  # type: ignore[assignment]
NEVER: list[str] = RULES["never"]  # type: ignore[assignment]
ALLOW: dict[str, list[str]] = RULES["allow"]  # type: ignore[assignment]
ONLY: dict[str, list[str]] = RULES["only"]  # type: ignore[assignment]
OF_MODULES: dict[str, list[str]] = RULES["module"]  # type: ignore[assignment]
APART: dict[str, list[str]] = RULES["apart"]  # type: ignore[assignment]

BANNED_BUILTINS = {"open", "print", "input", "breakpoint", "exec", "eval", "compile", "__import__", "__builtins__"}
#: Methods of date and datetime that read a clock.
CLOCKS = {"now", "today", "utcnow"}


def pure_modules() -> list[Module]:
    return [each for each in modules().values() if each.package not in SHELLS and each.name not in SHELL_MODULES]


def allowed_here(module: Module) -> list[str]:
    of_package = ONLY.get(module.package) or [*EVERY, *ALLOW.get(module.package, [])]
    return [*of_package, *OF_MODULES.get(module.name, [])]


def outside(module: Module) -> Iterator[tuple[Import, set[str]]]:
    """Imports from outside the project, each with the members of a plainly imported module that are used."""
    for each in module.imports:
        if each.module.partition(".")[0] != "understudy":
            yield each, _members(module, each) if each.name is None else {each.name}


def _members(module: Module, imported: Import) -> set[str]:
    """Attributes read from a module imported by ``import``; its own name if it is used as a value."""
    owners = {
        id(node.value): node.attr
        for node in module.nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == imported.bound
    }
    return {
        owners.get(id(node), "") for node in module.nodes if isinstance(node, ast.Name) and node.id == imported.bound
    }


def permitted(imported: str, member: str, allowed: list[str]) -> bool:
    """``module``, a package that holds it, or ``module.member`` is on the list."""
    parts = imported.split(".")
    return f"{imported}.{member}" in allowed or any(".".join(parts[:n]) in allowed for n in range(1, len(parts) + 1))


def test_pure_packages_import_listed_modules_only() -> None:
    report(
        f"{module.at(each.line)}: {module.package} may not import {each.module}" + (f".{member}" if member else "")
        for module in pure_modules()
        for each, members in outside(module)
        for member in sorted(members or {""})
        if not permitted(each.module, member, allowed_here(module))
    )


def test_listed_imports_are_needed() -> None:
    used: dict[str, set[str]] = {}
    for module in pure_modules():
        for each, members in outside(module):
            used.setdefault(module.package, set()).update({each.module, *(f"{each.module}.{m}" for m in members)})
    report(
        f"rules.toml: {package} does not import {name}: remove it"
        for package, names in ALLOW.items()
        for name in names
        if not any(each == name or each.startswith(f"{name}.") for each in used.get(package, ()))
    )
    everywhere = set().union(*used.values())
    report(
        f"rules.toml: no pure package imports {name}"
        for name in EVERY
        if not any(each == name or each.startswith(f"{name}.") for each in everywhere)
    )
    report(f"rules.toml: there is no module {name}" for name in SHELL_MODULES if name not in modules())


def test_no_module_imports_what_executes_its_input() -> None:
    report(
        f"{module.at(each.line)}: {each.module} is never imported"
        for module in modules().values()
        for each in module.imports
        if each.module.partition(".")[0] in NEVER
    )


def test_shells_of_the_client_are_apart() -> None:
    """The blocking client has no event loop, and neither shell is built on the other (ADR 0043)."""
    report(
        f"{module.at(each.line)}: {module.name} never imports {never}"
        for prefix, banned in APART.items()
        for module in modules().values()
        if module.name == prefix or module.name.startswith(f"{prefix}.")
        for each in module.imports
        for never in banned
        if f"{each.module}.{each.name}.".startswith(f"{never}.") or f"{each.module}.".startswith(f"{never}.")
    )


def test_pure_packages_touch_no_world() -> None:
    report(fault for module in pure_modules() for fault in impurities(module))


def impurities(module: Module) -> Iterator[str]:
    """Coroutines, built-in functions that reach the world under any name, and clocks."""
    imported = {each.bound: each.module for each in module.imports}
    for node in module.nodes:
        fault = _impurity(node, imported)
        if fault is not None and fault not in OF_MODULES.get(module.name, []):
            yield f"{module.at(getattr(node, 'lineno', 1))}: {fault} in a pure package"
    for each in module.imports:
        if each.name == "open" and not each.module.startswith("understudy"):
            yield f"{module.at(each.line)}: {each.module}.open in a pure package"


def _impurity(node: ast.AST, imported: dict[str, str]) -> str | None:
    """The fault of one node, or None; ``imported`` maps names of the module to the modules they come from."""
    if isinstance(node, (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)):
        return "a coroutine"
    if isinstance(node, ast.comprehension) and node.is_async:
        return "an asynchronous comprehension"
    if isinstance(node, ast.Name) and node.id in BANNED_BUILTINS:
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        source = imported.get(node.value.id, "understudy")
        if node.attr == "open" and not source.startswith("understudy"):
            return f"{node.value.id}.open"
        if node.attr in CLOCKS and source == "datetime":
            return f"{node.value.id}.{node.attr}, which reads a clock,"
    return None


def test_impurities_are_found() -> None:
    """The rules themselves, on text that breaks each of them."""
    for text, fault in {
        "handle = open": "open in a pure package",
        "from codecs import open as read": "codecs.open",
        "import codecs\nread = codecs.open": "codecs.open",
        "from datetime import datetime\nnow = datetime.now": "reads a clock",
        "async def f(): pass": "a coroutine",
        "x = [y async for y in z]": "asynchronous comprehension",
        "eval('1')": "eval",
    }.items():
        assert any(fault in each for each in impurities(Module("text", SOURCE / "text.py", text))), text
    assert not list(impurities(Module("text", SOURCE / "text.py", "def f(x):\n    return x.open()")))
    assert permitted("collections.abc", "Iterator", ["collections"])
    assert permitted("sys", "byteorder", ["sys.byteorder"])
    assert not permitted("sys", "stdout", ["sys.byteorder"])
    assert not permitted("uuid", "", ["uuid.UUID"])
