"""Packages are installed by uv with the settings of pip, and by pip where uv cannot be had."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / ".ci" / "install.py"
RULES = (ROOT / "Makefile").read_text() + (ROOT / ".ci" / "collection.mk").read_text()
LISTING = """\
:env:.disable-pip-version-check='1'
:env:.find-links='/env/wheels'
global.cert='/etc/ssl/own.crt'
global.extra-index-url='\\nhttp://one.invalid/simple\\nhttp://two.invalid/simple'
global.find-links='/wheels'
global.index-url='http://index.invalid/simple'
freeze.timeout='10'
install.timeout='60'
"""

spec = importlib.util.spec_from_file_location("ci_install", SCRIPT)
assert spec is not None
assert spec.loader is not None
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


def test_the_settings_of_pip_are_handed_to_uv() -> None:
    settings = install.settings_of_pip(LISTING)
    assert install.options_for_uv(settings, {}) == [
        *("--index-url", "http://index.invalid/simple"),
        *("--extra-index-url", "http://one.invalid/simple"),
        *("--extra-index-url", "http://two.invalid/simple"),
        *("--find-links", "/env/wheels"),
        *("--index-strategy", "unsafe-best-match"),
    ]
    assert install.variables_for_uv(settings, {}) == {"SSL_CERT_FILE": "/etc/ssl/own.crt", "UV_HTTP_TIMEOUT": "60"}


def test_variables_of_uv_go_before_the_settings_of_pip() -> None:
    settings = install.settings_of_pip(LISTING)
    own = {"UV_INDEX_URL": "http://own.invalid", "UV_EXTRA_INDEX_URL": "", "UV_FIND_LINKS": "", "SSL_CERT_FILE": "/own"}
    assert install.options_for_uv(settings, own) == []
    assert install.variables_for_uv(settings, own)["SSL_CERT_FILE"] == "/own"


def test_without_settings_uv_has_its_own() -> None:
    assert install.settings_of_pip("") == {}
    assert install.options_for_uv({}, {}) == []
    assert install.options_for_uv({"no-index": "true"}, {}) == ["--no-index"]


def test_uv_is_pinned() -> None:
    assert install.pinned_uv(install.CONSTRAINTS.read_text()).count(".") == 2


def test_the_makefile_installs_with_nothing_else() -> None:
    assert "pip install" not in RULES
    assert RULES.count("$(INSTALL) ") >= 4


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """Directory that looks like a virtual environment, whose interpreter writes down how it is called."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    program(programs / "python", 'case "$*" in *uv==*) exit $UV_OUTCOME ;; esac')
    return tmp_path / "venv"


def program(path: Path, then: str) -> None:
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" >> "$CALLS"\n{then}\n')
    path.chmod(0o755)


def run(venv: Path, uv_outcome: int) -> tuple[int, str, str]:
    calls = venv / "calls"
    done = subprocess.run(
        [sys.executable, SCRIPT, venv, "-e", "broker"],
        env=os.environ | {"CALLS": str(calls), "UV_OUTCOME": str(uv_outcome)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, calls.read_text()


def test_pip_installs_where_uv_cannot_be_had(environment: Path) -> None:
    code, said, calls = run(environment, 1)
    assert code == 0
    assert "pip installs the packages" in said
    assert calls.splitlines()[-1].endswith("install --quiet --disable-pip-version-check -e broker")


@pytest.mark.parametrize(("outcome", "by_pip"), [(0, False), (1, True)])
def test_uv_installs_where_it_is_there(environment: Path, outcome: int, by_pip: bool) -> None:
    version = install.pinned_uv(install.CONSTRAINTS.read_text()).partition("==")[2]
    program(environment / "bin" / "uv", f'[ "$1" = --version ] && echo "uv {version}" && exit\nexit {outcome}')
    code, said, calls = run(environment, 0)
    assert code == 0
    assert "pip install --quiet --compile-bytecode" in calls
    assert "uv cache prune" in calls
    assert ("pip tries it" in said) == by_pip
    assert calls.splitlines()[-1].startswith("python" if by_pip else "uv")
