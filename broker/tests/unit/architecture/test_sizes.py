"""Sizes of modules, functions and classes, and how many modules one imports.

Counted are:

- *lines* of a module. A module with exactly one class may be longer than others, because such a class is not divided
  for the sake of a number.
- *attributes* of a class: its annotated fields (not ``ClassVar``), its ``__slots__``, and the attributes that its
  methods assign to ``self``, those of its base classes in this project included. Members of enumerations do not count.
  Fields of dataclasses count.
- *methods* of a class: all of them, those of its base classes in this project included.
- *parameters* of a function or method, without ``self``. Commands do not count: their parameters are the options of a
  command line. Nor do operations of management: Artemis declares their parameters (ADR 0191). A dataclass whose
  methods assign nothing to ``self`` is a value: its fields are its contents, named by keyword where it is made, and not
  parameters. The fields of any other dataclass are parameters, so a service does not pass the limit by becoming a
  dataclass.
- *imported modules*: distinct modules of this project, those needed for types only included.
- *files in a folder*: modules of Python in one folder, without those in folders below it.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache

from support.architecture import ROOT, SOURCE, Class, Module, class_of, classes, modules, report, rules, shrinking

SIZES: dict[str, int] = rules()["sizes"]  # type: ignore[assignment]
Function = ast.FunctionDef | ast.AsyncFunctionDef
VAGUE = ("util", "helper", "manager", "impl", "misc", "common")
#: JTA's own term, should a module of that name come.
STANDARD_TERMS = {"resource_manager"}


def test_modules_are_short_and_have_a_docstring() -> None:
    report(fault for module in modules().values() for fault in module_faults(module))


def module_faults(module: Module) -> Iterator[str]:
    lines = module.text.count("\n")
    most = SIZES["module_lines_with_one_class" if has_one_class(module) else "module_lines"]
    if lines > most:
        yield f"{module.at(1)}: {lines} lines, at most {most}; split it by decision"
    if not ast.get_docstring(module.tree):
        yield f"{module.at(1)}: no module docstring"
    if any(word in module.path.stem for word in VAGUE) and module.path.stem not in STANDARD_TERMS:
        yield f"{module.at(1)}: the name does not say what is in it"


def has_one_class(module: Module) -> bool:
    return sum(isinstance(node, ast.ClassDef) for node in module.tree.body) == 1


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


def parameters(function: Function, *, in_class: bool) -> int:
    """The number of parameters, without the one for the object or class itself."""
    arguments = function.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    bound = in_class and not any(ast.unparse(each) == "staticmethod" for each in function.decorator_list)
    return count + (arguments.vararg is not None) + (arguments.kwarg is not None) - bound


def fields_as_parameters(node: ast.ClassDef) -> int:
    """The parameters of the constructor that a dataclass gets for its fields; 0 for a value, and for other classes."""
    if not is_dataclass(node) or not any(assigned(each) for each in methods(node) if not is_static(each)):
        return 0
    if any(each.name == "__init__" for each in methods(node)):
        return 0
    hidden = {
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is not None
        if "init=False" in ast.unparse(each.value)
    }
    return len(fields(node) - hidden)


def is_counted(function: Function) -> bool:
    """Whether the number of parameters is a decision of ours: not of a command, and not of one form of a function."""
    decorators = " ".join(ast.unparse(each) for each in function.decorator_list)
    return "overload" not in decorators and "command(" not in decorators and "option" not in decorators


def is_operation(function: Function, module: Module) -> bool:
    """Whether a function is called with the parameters of a management operation, after the resource itself."""
    parameters = [*function.args.posonlyargs, *function.args.args]
    annotation = parameters[0].annotation if parameters else None
    return (
        module.name.startswith("management.operations.")
        and annotation is not None
        and ast.unparse(annotation).endswith("Control")
    )


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """Every function and constructor of a module with the number of its parameters."""
    for scope in module.nodes:
        if not isinstance(scope, ast.Module | ast.ClassDef | Function):
            continue
        inside = f"{scope.name}." if not isinstance(scope, ast.Module) else ""
        for node in scope.body:
            if isinstance(node, Function) and is_counted(node) and not is_operation(node, module):
                count = parameters(node, in_class=isinstance(scope, ast.ClassDef))
                yield f"{module.name}:{inside}{node.name}", count
            elif isinstance(node, ast.ClassDef) and (count := fields_as_parameters(node)):
                yield f"{module.name}:{inside}{node.name}", count


def with_bases(each: Class) -> Iterator[ast.ClassDef]:
    """A class and its base classes in this project."""
    seen: set[str] = set()
    waiting = [each]
    while waiting:
        found = waiting.pop()
        if found.key not in seen:
            seen.add(found.key)
            yield found.node
            waiting += [base for name in found.node.bases if (base := class_of(name, found.module)) is not None]


@cache
def all_attributes(each: Class) -> set[str]:
    return set().union(*(attributes(node) for node in with_bases(each)))


@cache
def all_methods(each: Class) -> set[str]:
    return {method.name for node in with_bases(each) for method in methods(node)}


def test_classes_have_few_attributes() -> None:
    section = "class attributes"
    # values of the management model have a field for each figure that is shown, and no behaviour (ADR 0137)
    counted = [each for each in classes() if not each.key.startswith("management.model.")]
    report(shrinking(section, {each.key: len(all_attributes(each)) for each in counted}, SIZES[section]))


def test_classes_have_few_methods() -> None:
    section = "class methods"
    report(shrinking(section, {each.key: len(all_methods(each)) for each in classes()}, SIZES[section]))


def test_functions_take_few_parameters() -> None:
    section = "parameters"
    counts = dict(each for module in modules().values() for each in functions(module))
    report(shrinking(section, counts, SIZES[section]))


def test_folders_have_few_files() -> None:
    section = "files in a folder"
    counts = Counter(str(module.path.parent.relative_to(SOURCE)) for module in modules().values())
    report(shrinking(section, counts, SIZES[section]))


def test_modules_import_few_others() -> None:
    section = "imported modules"
    # these two stand in for modules of others: ``dataclasses``, and ``click.echo``; the terms are words, not parts
    ignored = {"dataclass", "cli.terminal", "terms"}
    counts = {name: len(each.internal.keys() - ignored) for name, each in modules().items()}
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
    (constructor,) = methods(service)
    assert parameters(constructor, in_class=True) == 3
    value = first("@dataclass(frozen=True)\nclass V:\n a: int\n b: int = 0\n def c(self):\n  return self.a\n")
    assert attributes(value) == {"a", "b"}
    assert fields_as_parameters(value) == 0
    hidden = first("@dataclass\nclass S:\n a: int\n b: int = field(init=False)\n def c(self):\n  self.a = 1\n")
    assert fields_as_parameters(hidden) == 1
    keys = first("class T(TypedDict):\n a: int\n")
    assert not attributes(keys)


def test_attributes_and_methods_of_base_classes_count() -> None:
    queue = next(each for each in classes() if each.key == "protocols.core.session:CoreSession")
    assert all_attributes(queue) > attributes(queue.node)
    assert all_methods(queue) > {method.name for method in methods(queue.node)}
