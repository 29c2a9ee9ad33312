"""The walls of the house (docs/architecture.md): pure rooms, one-way imports, readable sizes.

Goal: a breach fails the build with the file, the line and the rule. Method: stdlib ``ast`` over
every module; nothing is imported.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "understudy"
MODULES = sorted(SOURCE.rglob("*.py"))

#: Rooms that may touch the world.
SHELLS = ("runtime", "cli", "spark", "testing", "client/aio", "client/sync")
BANNED_IN_PURE_ROOMS = {
    "asyncio", "concurrent", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select", "selectors",
    "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time", "uvloop", "aiohttp",
}  # fmt: skip
BANNED_CALLS = {"open", "eval", "exec", "__import__", "compile", "input", "print"}
NEVER_IMPORTED = {"pickle", "marshal", "shelve"}

#: A room may import rooms of a lower level, and of its own.
LEVELS = [
    {"errors", "ids", "limits", "units", "clock", "__init__"},
    {"properties", "machine", "ports"},
    {"message", "ledger"},
    {"selector"},
    {"wire", "config"},
    {"store", "security"},
    {"routing"},
    {"session"},
    {"cluster"},
    {"protocols", "ha"},
    {"resource"},
    {"management"},
    {"broker"},
    {"runtime"},
    {"cli"},
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
#: Rooms with rules of their own: what each may import besides itself.
SPECIAL = {
    "client": {"errors", "ids", "limits", "units", "machine", "ports", "properties", "message", "wire", "__init__"},
    "spark": {"errors", "ids", "limits", "units", "ledger", "store", "client", "__init__"},
}
ROUTING_AND_SESSION_KNOW_NOTHING_OF = {"wire", "ha", "cluster", "protocols", "runtime"}

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def is_shell(path: Path) -> bool:
    return str(path.relative_to(SOURCE)).removesuffix(".py").startswith(SHELLS)


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            found.append((node.lineno, node.module or ""))
            if node.module == "understudy":
                found += [(node.lineno, f"understudy.{alias.name}") for alias in node.names if alias.name[0] != "_"]
    return found


@pytest.fixture(params=MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def module(request: pytest.FixtureRequest) -> tuple[Path, ast.Module]:
    return request.param, ast.parse(request.param.read_text())


def test_pure_rooms_touch_no_world(module: tuple[Path, ast.Module]) -> None:
    path, tree = module
    names = imports(tree)
    for line, name in names:
        assert name.partition(".")[0] not in NEVER_IMPORTED, f"{path}:{line}: {name} is never imported"
    if is_shell(path) or (path.name == "reference.py" and path.parent.name == "config"):
        return
    for line, name in names:
        assert name.partition(".")[0] not in BANNED_IN_PURE_ROOMS, f"{path}:{line}: {name} in a pure room"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in BANNED_CALLS, f"{path}:{node.lineno}: {node.func.id}() in a pure room"
        assert not isinstance(node, (ast.AsyncFunctionDef, ast.Await)), f"{path}:{node.lineno}: async in a pure room"


def test_imports_go_one_way(module: tuple[Path, ast.Module]) -> None:
    path, tree = module
    room = room_of(path)
    type_checking = {
        inner.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
        if isinstance(inner, (ast.Import, ast.ImportFrom))
    }
    for line, name in imports(tree):
        if not name.startswith("understudy.") or (line in type_checking and name.split(".")[1] == room):
            continue
        other = name.split(".")[1]
        if other == room or room == "testing":
            continue
        if room in SPECIAL:
            assert other in SPECIAL[room], f"{path}:{line}: {room} imports {other}"
            continue
        assert other != "testing", f"{path}:{line}: product code imports testing"
        if room == "cli" and other in {"client", "spark"}:
            continue
        if room in {"routing", "session"}:
            assert other not in ROUTING_AND_SESSION_KNOW_NOTHING_OF, f"{path}:{line}: {room} imports {other}"
        assert LEVEL_OF[other] <= LEVEL_OF[room], f"{path}:{line}: {room} imports {other}, which is above it"


def test_modules_and_functions_stay_readable(module: tuple[Path, ast.Module]) -> None:
    path, tree = module
    lines = path.read_text().count("\n")
    assert lines <= MODULE_LINES_MAX, f"{path}: {lines} lines; split it by decision"
    assert ast.get_docstring(tree), f"{path}: no module docstring"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            doc = ast.get_docstring(node, clean=False)
            length -= doc.count("\n") + 1 if doc else 0
            assert length <= FUNCTION_LINES_MAX, f"{path}:{node.lineno}: {node.name} has {length} lines"


def test_names_avoid_the_vague() -> None:
    vague = ("util", "helper", "manager", "impl", "misc", "common")
    for path in MODULES:
        assert not any(word in path.stem.lower() for word in vague), f"{path}: a name that says nothing"


def test_collection_never_imports_the_broker() -> None:
    root = SOURCE.parents[2]
    for folder in ("plugins", "roles"):
        for path in (root / folder).rglob("*.py"):
            for line, name in imports(ast.parse(path.read_text())):
                assert name.partition(".")[0] != "understudy", f"{path}:{line}: the collection speaks HTTP"
