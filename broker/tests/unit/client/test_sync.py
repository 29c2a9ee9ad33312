"""The blocking client has the public names of the asyncio client."""

from __future__ import annotations

import inspect

import pytest

from understudy.client import aio, sync

_PAIRS = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
_OWN = {"warn_if_open"}


def names(cls: type) -> set[str]:
    kept = {name for name in vars(cls) if not name.startswith("_") or name in {*_PAIRS, *_PAIRS.values()}}
    return {_PAIRS.get(name, name) for name in kept} - _OWN


def test_modules_export_the_same() -> None:
    assert sorted(aio.__all__) == sorted(sync.__all__)


@pytest.mark.parametrize("cls", ["Browser", "Connection", "ConnectionFactory", "Consumer", "Producer", "Session"])
def test_classes_have_the_same_members(cls: str) -> None:
    ours = names(getattr(sync, cls))
    theirs = names(getattr(aio, cls)) | ({"created_at"} if cls == "Connection" else set())
    assert ours == theirs


@pytest.mark.parametrize("cls", ["Connection", "Consumer", "Producer", "Session"])
def test_methods_take_the_same_arguments(cls: str) -> None:
    for name, method in inspect.getmembers(getattr(sync, cls), inspect.isfunction):
        if name.startswith("_"):
            continue
        theirs = inspect.signature(getattr(getattr(aio, cls), name)).parameters
        assert list(inspect.signature(method).parameters) == list(theirs), f"{cls}.{name}"


def test_connecting_takes_the_same_arguments() -> None:
    assert list(inspect.signature(sync.connect).parameters) == list(inspect.signature(aio.connect).parameters)


def test_xa_branches_have_the_same_members() -> None:
    assert names(sync.XaBranches) == names(aio.XaBranches)
    for name in names(sync.XaBranches):
        ours, theirs = getattr(sync.XaBranches, name), getattr(aio.XaBranches, name)
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
