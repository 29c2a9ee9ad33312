"""Sizes of modules, functions and classes, and how many modules one imports.

Counted are:

- *attributes* of a class: its annotated fields (not ``ClassVar``), its ``__slots__``, and what its own methods assign
  to ``self``. Inherited attributes and members of enumerations do not count. Fields of dataclasses count.
- *constructor parameters*: those of a written ``__init__`` without ``self``. A dataclass whose methods assign nothing
  to ``self`` is a value: its fields are its contents, named by keyword where it is made, and not parameters. The fields
  of any other dataclass are parameters, so a service does not pass the limit by becoming a dataclass.
- *imported modules*: distinct modules of this project, those needed for types only included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from support.architecture import ROOT, SOURCE, Module, modules, report, rules, shrinking

SIZES: dict[str, int] = rules()["sizes"]  # type: ignore[assignment]
Function = ast.FunctionDef | ast.AsyncFunctionDef
VAGUE = ("util", "helper", "manager", "impl", "misc", "common")
#: JTA's own term, should a module of that name come.
STANDARD_TERMS = {"resource_manager"}


def test_modules_are_short_and_have_a_docstring() -> None:
    report(fault for module in modules().values() for fault in module_faults(module))


def module_faults(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    if lines > SIZES["module_lines"]:
        yield f"{module.at(1)}: {lines} lines, at most {SIZES['module_lines']}; split it by decision"
    if not ast.get_docstring(module.tree):
        yield f"{module.at(1)}: no module docstring"
    if any(word in module.path.stem for word in VAGUE) and module.path.stem not in STANDARD_TERMS:
        yield f"{module.at(1)}: the name does not say what is in it"


def test_test_modules_are_short() -> None:
    tests = ROOT / "broker" / "tests"
    lines = {str(path.relative_to(tests)): path.read_text().count("\n") for path in tests.rglob("*.py")}
    long = {path for path, count in lines.items() if count > SIZES["module_lines"]}
    report(f"{path}: {lines[path]} lines; split it by decision" for path in sorted(long))


def test_functions_are_short() -> None:
    """A docstring does not count."""
    report(
        f"{module.at(node.lineno)}: {node.name} has {length} lines, at most {SIZES['function_lines']}"
        for module in modules().values()
        for node in module.nodes
        if isinstance(node, Function) and (length := function_lines(node)) > SIZES["function_lines"]
    )


def function_lines(node: Function) -> int:
    doc = ast.get_docstring(node, clean=False)
    return (node.end_lineno or node.lineno) - node.lineno + 1 - (doc.count("\n") + 1 if doc else 0)


def test_the_kernel_is_small() -> None:
    lines = sum(each.text.count("\n") for each in modules().values() if each.package == "kernel")
    assert lines <= SIZES["kernel_lines"], f"kernel has {lines} lines"


@cache
def classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (f"{module.name}:{node.name}", node)
        for module in modules().values()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    ]


def methods(node: ast.ClassDef) -> Iterator[Function]:
    return (each for each in node.body if isinstance(each, Function))


def assigned(function: Function) -> set[str]:
    """Attributes that a method assigns to its first parameter."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    if not parameters:
        return set()
    return {
        each.attr
        for each in ast.walk(function)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == parameters[0].arg
    }


def is_static(function: Function) -> bool:
    names = {each.id for each in function.decorator_list if isinstance(each, ast.Name)}
    return bool(names & {"classmethod", "staticmethod"})


def fields(node: ast.ClassDef) -> set[str]:
    """Annotated names of the class body, but for class variables."""
    return {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        if not ast.unparse(each.annotation).startswith(("ClassVar", "Final"))
    }


def slots(node: ast.ClassDef) -> set[str]:
    return {
        constant.value
        for each in node.body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "__slots__"
        for constant in ast.walk(each.value)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }


def attributes(node: ast.ClassDef) -> set[str]:
    if any("TypedDict" in ast.unparse(base) for base in node.bases):
        return set()
    own = set().union(*(assigned(each) for each in methods(node) if not is_static(each)))
    return own | fields(node) | slots(node)


def is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(each).partition("(")[0] == "dataclass" for each in node.decorator_list)


def constructor_parameters(node: ast.ClassDef) -> int:
    for each in methods(node):
        if each.name == "__init__":
            arguments = each.args
            count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs) - 1
            return count + (arguments.vararg is not None) + (arguments.kwarg is not None)
    if not is_dataclass(node) or not any(assigned(each) for each in methods(node) if not is_static(each)):
        return 0
    hidden = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None
        if "init=False" in ast.unparse(each.value)
    }
    return len(fields(node) - hidden)


def test_classes_have_few_attributes() -> None:
    section = "class attributes"
    report(shrinking(section, {key: len(attributes(node)) for key, node in classes()}, SIZES[section]))


def test_constructors_take_few_parameters() -> None:
    section = "constructor parameters"
    report(shrinking(section, {key: constructor_parameters(node) for key, node in classes()}, SIZES[section]))


def test_modules_import_few_others() -> None:
    section = "imported modules"
    # these two stand in for modules of others: ``dataclasses``, and ``click.echo``
    counts = {name: len(each.internal.keys() - {"dataclass", "cli.terminal"}) for name, each in modules().items()}
    report(shrinking(section, counts, SIZES[section]))


def test_the_counting() -> None:
    """Small classes show what counts as an attribute or a parameter."""

    def first(text: str) -> ast.ClassDef:
        node = Module("text", SOURCE / "text.py", text).tree.body[0]
        assert isinstance(node, ast.ClassDef)
        return node

    service = first(
        "class A:\n __slots__ = ('s',)\n K: ClassVar[int] = 1\n a: int\n"
        " def __init__(self, x, *, y, **z):\n  self.b, self.c = x, y\n  self.d.e = 1\n  self.c += 1\n"
    )
    assert attributes(service) == {"s", "a", "b", "c"}
    assert constructor_parameters(service) == 3
    value = first("@dataclass(frozen=True)\nclass V:\n a: int\n b: int = 0\n def c(self):\n  return self.a\n")
    assert attributes(value) == {"a", "b"}
    assert constructor_parameters(value) == 0
    hidden = first("@dataclass\nclass S:\n a: int\n b: int = field(init=False)\n def c(self):\n  self.a = 1\n")
    assert constructor_parameters(hidden) == 1
    keys = first("class T(TypedDict):\n a: int\n")
    assert not attributes(keys)
