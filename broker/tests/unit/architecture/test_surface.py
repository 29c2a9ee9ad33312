"""The public Python names with their signatures are those of ``surface.txt``.

A change of the API is thus a change of that file, which is reviewed. Public are the modules listed in ``rules.toml``,
in them the names of ``__all__`` (without ``__all__``: its definitions), and of a public class its members without an
underscore; and the requests of the management interface. ``make architecture`` writes the file anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from support.architecture import ROOT, TABLES, Module, internal_target, modules, report, rewriting, rules
from understudy.management.doors import openapi

PUBLIC_MODULES: list[str] = rules()["surface"]["modules"]  # type: ignore[index]
SHOWS_BROKER: list[str] = rules()["surface"]["shows_broker"]  # type: ignore[index]
SHOWS_PRIVATE: list[str] = rules()["surface"]["shows_private"]  # type: ignore[index]
SURFACE = TABLES / "surface.txt"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.Assign | ast.AnnAssign | ast.Import


@cache
def definitions(module: Module) -> dict[str, ast.stmt]:
    """The top-level definitions of a module by name."""
    found: dict[str, ast.stmt] = {}
    for node in module.tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({each.id: node for each in node.targets if isinstance(each, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def public_names(module: Module) -> list[str]:
    exported = definitions(module).get("__all__")
    if isinstance(exported, ast.Assign):
        names: list[str] = ast.literal_eval(exported.value)
        return names
    return [name for name in definitions(module) if name[0] != "_" or name == "__version__"]


def resolve(module: Module, name: str) -> tuple[Module, ast.stmt] | None:
    """The module that defines a name, through re-exports; None for names from outside the project."""
    for _ in range(8):
        node = definitions(module).get(name)
        if node is not None:
            return module, node
        for each in module.imports:
            if each.bound == name and (target := internal_target(each)) is not None:
                if target.rpartition(".")[2] == each.name and target in modules():
                    return modules()[target], modules()[target].tree  # type: ignore[return-value]  # a module
                module, name = modules()[target], each.name or name
                break
        else:
            return None
    return None


@cache
def public_objects() -> dict[tuple[str, str], str]:
    """(defining module, name there) to the public name."""
    found = {}
    for short in PUBLIC_MODULES:
        for name in public_names(modules()[short]):
            resolved = resolve(modules()[short], name)
            if resolved is not None:
                found[resolved[0].name, name] = f"{short}.{name}"
    return found


def annotations(node: ast.AST) -> Iterator[ast.expr]:
    """Annotations of a signature or a field, and the bases of a class."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        yield from (each.annotation for each in every if each is not None and each.annotation is not None)
        if node.returns is not None:
            yield node.returns
    elif isinstance(node, ast.AnnAssign):
        yield node.annotation
    elif isinstance(node, ast.ClassDef):
        yield from node.bases


def hidden_names(module: Module, node: ast.AST) -> Iterator[str]:
    """Names of this project in its annotations that no public module exports."""
    public = public_objects()
    for annotation in annotations(node):
        for each in ast.walk(annotation):
            if not isinstance(each, ast.Name):
                continue
            resolved = resolve(module, each.id)
            if resolved is None or "TypeVar(" in ast.unparse(resolved[1]):
                continue
            if (resolved[0].name, each.id) not in public:
                yield each.id


def members(node: ast.ClassDef) -> Iterator[tuple[str, ast.stmt]]:
    for each in node.body:
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and (
            each.name[0] != "_" or each.name == "__init__"
        ):
            yield each.name, each
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
            yield each.target.id, each
        elif isinstance(each, ast.Assign):
            yield from ((t.id, each) for t in each.targets if isinstance(t, ast.Name) and t.id[0] != "_")


def described(name: str, node: ast.stmt) -> str:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        decorators = {ast.unparse(each) for each in node.decorator_list}
        returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
        if "property" in decorators:
            return f"{name}{returns.replace(' ->', ':')}"
        prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
        return f"{prefix}{name}({ast.unparse(node.args)}){returns}"
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(each) for each in node.bases)
        return f"class {name}" + (f"({bases})" if bases else "")
    if isinstance(node, ast.AnnAssign):
        return f"{name}: {ast.unparse(node.annotation)}"
    return name


def surface() -> Iterator[str]:
    """The lines of ``surface.txt``."""
    for short in PUBLIC_MODULES:
        module = modules()[short]
        yield ""
        yield f"[understudy.{short}]" if short != "understudy" else "[understudy]"
        for name in sorted(public_names(module)):
            resolved = resolve(module, name)
            assert resolved is not None, f"{short}.__all__ has {name}, which does not exist"
            home, node = resolved
            yield described(name, node)
            if isinstance(node, ast.ClassDef):
                yield from (
                    f"    {described(member, each)}"
                    for member, each in sorted(members(node), key=lambda pair: pair[0])
                    if member != "__init__" or not set(hidden_names(home, each))
                )
    yield ""
    yield "[management over HTTP]"
    yield from routes()


def routes() -> list[str]:
    """Method and path of every request that the management interface answers."""
    paths: dict[str, dict[str, object]] = openapi.document("")["paths"]  # type: ignore[assignment]
    return sorted(f"{method.upper()} {path}" for path, methods in paths.items() for method in methods)


def test_the_public_surface_is_the_one_that_was_reviewed() -> None:
    text = "\n".join(surface()).lstrip("\n") + "\n"
    if rewriting():
        SURFACE.write_text(text)
    recorded = SURFACE.read_text()
    changes = [f"+ {line}" for line in text.splitlines() if line not in recorded.splitlines()]
    changes += [f"- {line}" for line in recorded.splitlines() if line not in text.splitlines()]
    report([*changes, "the public API has changed: `make architecture` writes surface.txt"] if text != recorded else [])


def test_public_names_are_documented() -> None:
    faults = []
    for short in PUBLIC_MODULES:
        module = modules()[short]
        for name in public_names(module):
            resolved = resolve(module, name)
            if resolved is None or not isinstance(resolved[1], (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            home, node = resolved
            undocumented = [node] if ast.get_docstring(node) is None else []
            if isinstance(node, ast.ClassDef):
                undocumented += [
                    each  # type: ignore[misc]
                    for member, each in members(node)
                    if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and member != "__init__"
                    if ast.get_docstring(each) is None
                ]
            faults += [f"{home.at(each.lineno)}: public {each.name} has no docstring" for each in undocumented]
    report(dict.fromkeys(faults))


def test_public_signatures_name_public_types_only() -> None:
    """A constructor that takes private types is not for applications and not part of the surface."""
    faults = []
    for short in PUBLIC_MODULES:
        if short in SHOWS_BROKER:
            continue
        for name in public_names(modules()[short]):
            resolved = resolve(modules()[short], name)
            if resolved is None or name in SHOWS_PRIVATE:
                continue
            home, node = resolved
            inner = members(node) if isinstance(node, ast.ClassDef) else []
            for each in [node, *(each for member, each in inner if member != "__init__")]:
                faults += [
                    f"{home.at(each.lineno)}: {short}.{name} shows {hidden}, which no public module exports"
                    for hidden in sorted(set(hidden_names(home, each)))
                ]
    report(dict.fromkeys(faults))


def test_documented_requests_are_those_of_the_interface() -> None:
    page = (ROOT / "docs" / "operate" / "management-api.md").read_text()
    assert sorted(set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`]*)`", page))) == routes()


def test_documented_imports_are_public() -> None:
    faults = []
    for page in PAGES:
        for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for node in ast.walk(ast.parse(block)):
                if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("understudy"):
                    continue
                short = (node.module or "").removeprefix("understudy").lstrip(".") or "understudy"
                public = public_names(modules()[short]) if short in PUBLIC_MODULES else []
                inner = {name.rpartition(".")[2] for name in PUBLIC_MODULES if name.startswith(f"{short}.")}
                faults += [
                    f"{page.relative_to(ROOT)}: {alias.name} is not public in {node.module}"
                    for alias in node.names
                    if alias.name not in public and alias.name not in inner
                ]
    report(faults)
