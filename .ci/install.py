#!/usr/bin/env python3
"""Install Python packages into a virtual environment with uv, or with pip where uv cannot be had.

    .ci/install.py VENV ARGUMENT...

The arguments are those of ``pip install`` that uv has as well: ``-c``, ``-r``, ``-e`` and requirements. uv is installed
into the environment by its pip, in the version of ``requirements/constraints.txt``. It reads no configuration of pip,
so the index, the certificates and the proxy that pip is configured with are handed on; a variable of uv itself
(``UV_INDEX_URL`` and others) goes before.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "requirements" / "constraints.txt"
#: A setting of pip, the option of uv for each of its words, and the variable of uv that goes before it.
OPTIONS = (
    ("index-url", "--index-url", "UV_INDEX_URL"),
    ("extra-index-url", "--extra-index-url", "UV_EXTRA_INDEX_URL"),
    ("find-links", "--find-links", "UV_FIND_LINKS"),
    ("trusted-host", "--allow-insecure-host", "UV_INSECURE_HOST"),
)
#: A setting of pip, and the variable in which uv reads the same.
VARIABLES = (
    ("cert", "SSL_CERT_FILE"),
    ("proxy", "ALL_PROXY"),
    ("timeout", "UV_HTTP_TIMEOUT"),
)


def settings_of_pip(listing: str) -> dict[str, str]:
    """The settings that ``pip install`` would use, from the output of ``pip config list``.

    A name has its level before it: a variable of the environment (``:env:``) goes before the section of the command
    (``install``), and that before ``global``.
    """
    levels: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in listing.splitlines():
        name, _, value = line.partition("=")
        level, _, setting = name.partition(".")
        if level in levels and value:
            levels[level][setting.lower().replace("_", "-")] = str(ast.literal_eval(value))
    merged: dict[str, str] = {}
    for settings in levels.values():
        merged.update(settings)
    return merged


def options_for_uv(settings: dict[str, str], environment: dict[str, str]) -> list[str]:
    """Options of ``uv pip install`` that say what the settings of pip say."""
    options = []
    for setting, option, variable in OPTIONS:
        if variable not in environment:
            for word in settings.get(setting, "").split():
                options += [option, word]
    if "--extra-index-url" in options and "UV_INDEX_STRATEGY" not in environment:
        # pip takes the best version of all indexes, uv by default one of the first index that has the package
        options += ["--index-strategy", "unsafe-best-match"]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    return options


def variables_for_uv(settings: dict[str, str], environment: dict[str, str]) -> dict[str, str]:
    """The environment of uv, with what pip has in its configuration."""
    missing = {
        variable: settings[setting]
        for setting, variable in VARIABLES
        if setting in settings and variable not in environment
    }
    return environment | missing


def pinned_uv(constraints: str) -> str:
    """The requirement of uv, with its version."""
    return next(line for line in constraints.splitlines() if line.startswith("uv=="))


def has_uv(python: Path, requirement: str) -> bool:
    """Whether the environment has uv in this version, which is installed where it is missing, with the newest pip."""
    uv = python.with_name("uv")
    if uv.exists():
        done = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False)
        if done.stdout.split()[1:2] == [requirement.partition("==")[2]]:
            return True
    return run_pip(python, ["--upgrade", "pip", requirement]) == 0


def run_pip(python: Path, arguments: list[str]) -> int:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=False).returncode


def run_uv(python: Path, arguments: list[str]) -> int:
    listed = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    settings = settings_of_pip(listed.stdout)
    environment = dict(os.environ)
    # bytecode as pip makes it: the Makefile lets no process write it later
    command = [python.with_name("uv"), "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
    command += [*options_for_uv(settings, environment), *arguments]
    outcome = subprocess.run(command, env=variables_for_uv(settings, environment), check=False).returncode
    # an index that forbids caches makes uv build a source distribution anew each time and keep all of them: 2 GB of
    # Spark for each checkout; those that nothing can use any more go
    subprocess.run([command[0], "cache", "prune", "--quiet"], check=False)
    return outcome


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 or "--help" in arguments:
        print(__doc__)
        return 0 if "--help" in arguments else 2
    python = Path(arguments[0]).absolute() / "bin" / "python"
    requirement = pinned_uv(CONSTRAINTS.read_text())
    if not has_uv(python, requirement):
        print(f"{requirement} cannot be installed: pip installs the packages, which takes minutes longer", flush=True)
    elif run_uv(python, arguments[1:]) == 0:
        return 0
    else:
        print("uv could not install the packages: pip tries it, which takes minutes longer", flush=True)
    return run_pip(python, arguments[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
