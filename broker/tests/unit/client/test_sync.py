"""The blocking client has the classes and arguments of the asyncio client, generated from it and documented in full."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from documents.blocking_client import FOLDER, MODULES, blocking
from understudy.client import aio, sync

CLASSES = ["BodyReader", "Browser", "Connection", "ConnectionFactory", "Consumer", "Producer", "Received", "Session",
           "XaBranches"]  # fmt: skip
_PAIRS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


def names(cls: type) -> set[str]:
    kept = {name for name in vars(cls) if not name.startswith("_") or name in {*_PAIRS, *_PAIRS.values()}}
    return {_PAIRS.get(name, name) for name in kept}


@pytest.mark.parametrize("name", MODULES)
def test_generated_modules_are_current(name: str) -> None:
    assert (FOLDER / "sync" / f"{name}.py").read_text() == blocking(name), "run `make docs`"


def test_modules_export_the_same() -> None:
    assert sorted(aio.__all__) == sorted(sync.__all__)


@pytest.mark.parametrize("cls", CLASSES)
def test_classes_have_the_same_members_with_the_same_arguments(cls: str) -> None:
    assert names(getattr(sync, cls)) == names(getattr(aio, cls))
    for name, method in inspect.getmembers(getattr(sync, cls), inspect.isfunction):
        if not name.startswith("_"):
            theirs = inspect.signature(getattr(getattr(aio, cls), name)).parameters
            assert list(inspect.signature(method).parameters) == list(theirs), f"{cls}.{name}"


def test_connecting_takes_the_same_arguments() -> None:
    assert list(inspect.signature(sync.connect).parameters) == list(inspect.signature(aio.connect).parameters)


def public_functions(shell: ModuleType) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every public function and method of the modules of a shell that applications use, properties apart."""
    for name in MODULES:
        path = Path(str(shell.__file__)).parent / f"{name}.py"
        for top in ast.parse(path.read_text()).body:
            inner = top.body if isinstance(top, ast.ClassDef) and top.name in shell.__all__ else [top]
            for each in inner:
                if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    continue
                if each is top and each.name not in shell.__all__:
                    continue
                if each.name.startswith("_") or "property" in map(ast.unparse, each.decorator_list):
                    continue
                yield f"{path.parent.name}/{path.stem}.{each.name}", each


@pytest.mark.parametrize("shell", [aio, sync], ids=["aio", "sync"])
def test_docstrings_name_arguments_errors_and_behaviour_in_a_failover(shell: ModuleType) -> None:
    """Arguments, errors of what waits, what a failover does to the call, and tasks or threads."""
    faults = []
    for place, function in public_functions(shell):
        text = ast.get_docstring(function) or ""
        arguments = [each.arg for each in (*function.args.args, *function.args.kwonlyargs) if each.arg != "self"]
        faults += [f"{place}: argument {each}" for each in arguments if not re.search(rf"^\s+{each}: ", text, re.M)]
        faults += [f"{place}: {each}" for each in ("Failover", "oncurrency:") if each not in text]
        if isinstance(function, ast.AsyncFunctionDef) and "Raises:" not in text:
            faults.append(f"{place}: errors")
        if re.search(r"\bSee ``", text):
            faults.append(f"{place}: refers to another place")
    assert not faults, "\n".join(faults)


def test_the_blocking_client_speaks_of_threads() -> None:
    for name in MODULES:
        text = (FOLDER / "sync" / f"{name}.py").read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.Module)):
                said = ast.get_docstring(node) or ""
                assert not re.search(r"\btasks?\b|\bawait|\basync\b|event loop", said), f"{name}: {said}"
