"""Imports go one way: levels of packages, declared exceptions, and no cycle of modules.

Every import counts, those under ``TYPE_CHECKING`` and inside functions included: two classes that need each other's
types are one design, whichever of the imports is made at run time.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from support.architecture import (
    LOWER,
    ROOT,
    known,
    known_knots,
    modules,
    package_of,
    packages,
    report,
    rewriting,
    rules,
    write_known,
)

RULES = rules()
LEVELS: list[list[str]] = RULES["levels"]  # type: ignore[assignment]
LEVEL_OF = {package: level for level, names in enumerate(LEVELS) for package in names}
EXPECTED: dict[str, str] = RULES["expected"]  # type: ignore[assignment]
BESIDE: dict[str, dict[str, list[str]]] = RULES["beside"]  # type: ignore[assignment]
FRAMES: list[str] = RULES["frames"]["importers"]  # type: ignore[index,assignment]
NEVER: dict[str, list[str]] = RULES["never"]  # type: ignore[assignment]
#: Modules that may import config, of packages that have such a list.
CONFIGURATION: dict[str, list[str]] = RULES["configuration"]  # type: ignore[assignment]
SAME_LEVEL = {(entry["importer"], entry["imported"]) for entry in RULES["same_level"]}  # type: ignore[attr-defined]


def edges() -> Iterator[tuple[str, str, str, str, str]]:
    """Place, importing package, imported package, importing module, imported module; between packages only."""
    for module in modules().values():
        for target, line in module.internal.items():
            package = package_of(target)
            if package != module.package:
                yield module.at(line), module.package, package, module.name, target


def test_every_package_has_a_level_and_every_level_a_package() -> None:
    placed = LEVEL_OF.keys() | BESIDE.keys()
    report(f"{name}: no level in rules.toml" for name in packages() - placed)
    report(f"{name}: has a level and does not exist" for name in placed - packages() - EXPECTED.keys())
    report(f"{name}: exists, so it is not expected any more" for name in EXPECTED.keys() & packages())
    assert not LEVEL_OF.keys() & BESIDE.keys()


def test_packages_import_lower_levels_only() -> None:
    report(
        f"{place}: {importer} imports {imported}: {fault}"
        for place, importer, imported, _, _ in edges()
        if (fault := _fault(importer, imported)) is not None
    )


def _fault(importer: str, imported: str) -> str | None:
    if importer in BESIDE:
        allowed = BESIDE[importer]["imports"]
        return None if imported in allowed or "*" in allowed else "not among its imports in rules.toml"
    if imported in BESIDE:
        return None if importer in BESIDE[imported]["importers"] else "only its importers in rules.toml may"
    if imported in NEVER.get(importer, ()):
        return "rules.toml says never"
    if LEVEL_OF[imported] > LEVEL_OF[importer]:
        return "it is above"
    if LEVEL_OF[imported] == LEVEL_OF[importer] and (importer, imported) not in SAME_LEVEL:
        return "the same level, and not declared in rules.toml"
    return None


def test_the_core_knows_the_configuration_in_few_modules() -> None:
    """Routing and sessions take terms and values; a protocol or a test makes them without a file (ADR 0138)."""
    report(
        f"{place}: {module} imports {target}; rules.toml has the modules of {package} that may"
        for place, package, imported, module, target in edges()
        if imported == "config" and package in CONFIGURATION and module not in CONFIGURATION[package]
    )


def test_few_packages_know_core_frames() -> None:
    """The store, routing and sessions serve every protocol (ADR 0142)."""
    importers = {
        module.package
        for module in modules().values()
        if module.package != "kernel" and any(target.startswith("kernel.core") for target in module.internal)
    }
    assert importers == set(FRAMES), "rules.toml, [frames], names the packages that may"


def test_declared_imports_are_needed() -> None:
    made = {(importer, imported) for _, importer, imported, _, _ in edges()}
    report(f"{importer} does not import {imported}: remove it" for importer, imported in SAME_LEVEL - made)
    for package, sides in BESIDE.items():
        if package in EXPECTED:
            continue
        used = {imported for importer, imported in made if importer == package}
        report(
            f"{package} does not import {name}: remove it"
            for name in set(sides["imports"]) - used - {"*", "understudy"}
        )


def test_a_protocol_sees_only_its_own_packets() -> None:
    """``protocols/x`` imports ``wire/x`` and the modules of ``wire`` that belong to no protocol."""
    faults = []
    for _, _, _, importer, imported in edges():
        own = importer.split(".")[1:2] if importer.startswith("protocols.") else None
        other = imported.split(".")[1:2]
        if own is None or not imported.startswith("wire.") or not _is_package(f"wire.{other[0]}"):
            continue
        if other != own:
            faults.append(f"{importer} imports {imported}")
    for module in modules().values():
        if module.package == "protocols":
            own = module.name.split(".")[1:2]
            faults += [
                f"{module.name} imports {target}"
                for target in module.internal
                if target.startswith("protocols.")
                and _is_package(".".join(target.split(".")[:2]))
                and target.split(".")[1:2] != own
            ]
    report(faults)


def _is_package(name: str) -> bool:
    return name in modules() and modules()[name].path.name == "__init__.py"


def strongly_connected(graph: Mapping[str, set[str]]) -> list[frozenset[str]]:
    """Components of more than one node (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    found = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        while work:
            node, rest = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                path.append(node)
                on_path.add(node)
            for other in rest:
                if other not in index:
                    work.append((other, iter(sorted(graph[other]))))
                    break
                if other in on_path:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = set()
                    while node not in component:
                        component.add(path.pop())
                    on_path -= component
                    if len(component) > 1:
                        found.append(frozenset(component))
    return found


def import_graph() -> dict[str, set[str]]:
    """Every module with the modules that it imports. A package's own module stands for its exports."""
    return {name: set(module.internal) for name, module in modules().items()}


def test_modules_import_each_other_in_no_circle() -> None:
    knots = strongly_connected(import_graph())
    recorded = known_knots()
    if rewriting():
        recorded = [knot for knot in knots if any(knot <= before for before in recorded)] + [
            before for before in recorded if any(knot & before and not knot <= before for knot in knots)
        ]
        write_known(known(), recorded)
    report(knot_faults(knots, recorded))


def knot_faults(knots: list[frozenset[str]], recorded: list[frozenset[str]]) -> Iterator[str]:
    """Differences between the import cycles of today and those that known.toml allows."""
    for knot in knots:
        if knot in recorded:
            continue
        around = next((before for before in recorded if knot <= before), None)
        if around is not None:
            yield f"{', '.join(sorted(around - knot))} left the circle of {min(around)}: {LOWER}"
            continue
        nearest = max(recorded, key=lambda before: len(before & knot), default=frozenset())
        yield f"a circle of imports: {', '.join(sorted(knot - nearest))}" + (
            f" joined {', '.join(sorted(knot & nearest))}" if knot & nearest else ""
        )
    for before in recorded:
        if not any(knot & before for knot in knots):
            yield f"the circle of {min(before)} is gone: {LOWER}"


def test_a_knot_can_only_shrink() -> None:
    """The comparison itself: what joins, leaves or goes is a fault, the same again is none."""
    before = [frozenset("abc")]
    assert not list(knot_faults([frozenset("abc")], before))
    assert list(knot_faults([frozenset("abcd")], before)) == ["a circle of imports: d joined a, b, c"]
    assert list(knot_faults([frozenset("xy")], [])) == ["a circle of imports: x, y"]
    (smaller,) = knot_faults([frozenset("ab")], before)
    assert smaller.startswith("c left the circle of a")
    (gone,) = knot_faults([], before)
    assert gone.startswith("the circle of a is gone")
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert strongly_connected(graph) == [frozenset("abc")]


def test_no_module_imports_a_private_name_of_another() -> None:
    report(
        f"{module.at(each.line)}: {each.module} keeps {each.name} to itself"
        for module in modules().values()
        for each in module.imports
        if each.module.startswith("understudy") and each.name is not None and each.name[0] == "_"
        if not each.name.startswith("__")
    )


def test_product_code_and_collection_are_apart() -> None:
    """Modules and roles of the collection speak HTTP to the broker and never import it."""
    report(
        f"{path}: imports understudy"
        for folder in ("plugins", "roles")
        for path in (ROOT / folder).rglob("*.py")
        if "understudy" in path.read_text() and _imports_understudy(path.read_text())
    )


def _imports_understudy(text: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] == "understudy" for name in names):
            return True
    return False
