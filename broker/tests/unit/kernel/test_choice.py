"""Choice of the kernel, and the error when the chosen one is not installed (ADR 0034)."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from understudy import kernel
from understudy.errors import ConfigError
from understudy.kernel import FUNCTIONS, INTERFACE, amqp091, choose, core, load_native, log


def native(interface: int = INTERFACE, functions: tuple[str, ...] = FUNCTIONS) -> ModuleType:
    module = ModuleType("understudy_kernel")
    module.INTERFACE = interface  # type: ignore[attr-defined]
    module.__version__ = "1.2.3"  # type: ignore[attr-defined]
    for name in functions:
        setattr(module, name, None)
    return module


def missing() -> ModuleType:
    raise ImportError("understudy_kernel is not installed")


def test_the_native_module_is_used_where_it_can_be() -> None:
    assert choose(None, native) == ("native", "understudy_kernel 1.2.3")
    assert choose("", native) == ("native", "understudy_kernel 1.2.3")
    assert choose("native", native) == ("native", "understudy_kernel 1.2.3")


def test_without_it_the_twin_runs_and_the_reason_is_kept() -> None:
    assert choose(None, missing) == ("python", "understudy_kernel is not installed")


def test_the_variable_forces_the_twin_without_loading_the_module() -> None:
    assert choose("python", lambda: pytest.fail("loaded")) == ("python", "UNDERSTUDY_KERNEL=python")


def test_a_forced_module_that_is_missing_is_an_error_that_says_how_to_install_it() -> None:
    with pytest.raises(ConfigError, match=r"=native, but understudy_kernel is not installed .*understudy\[fast\]"):
        choose("native", missing)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (native(INTERFACE + 1), f"has interface {INTERFACE + 1}, this version of understudy needs {INTERFACE}"),
        (ModuleType("understudy_kernel"), "has interface None"),
        (native(functions=FUNCTIONS[1:]), f"lacks {FUNCTIONS[0]}: it was built from other sources"),
    ],
)
def test_a_module_of_another_version_is_refused(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, reason: str
) -> None:
    monkeypatch.setitem(sys.modules, "understudy_kernel", module)
    with pytest.raises(ImportError, match=reason):
        load_native()


def test_a_module_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "understudy_kernel", None)
    with pytest.raises(ImportError, match="understudy_kernel is not installed"):
        load_native()


def test_every_function_of_the_native_module_has_a_twin_that_is_exported() -> None:
    for name in FUNCTIONS:
        (part,) = (part for part in (kernel, amqp091, core, log) if name in part.__all__)
        assert callable(getattr(part, name))


def test_another_value_of_the_variable_ends_a_command_with_exit_code_2() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "from understudy.cli.main import main; main()", "data", "verify", "/nowhere"],
        env=os.environ | {"UNDERSTUDY_KERNEL": "fortran"},
        capture_output=True,
        text=True,
    )
    assert found.stderr == "understudy: UNDERSTUDY_KERNEL=fortran: the value must be python or native\n"
    assert found.returncode == 2
