#!/usr/bin/env python3
"""Build the wheel of understudy-kernel with the pip of the interpreter that runs this.

    build.py --install                             build the wheel and install it beside the broker
    build.py --wheel-dir DIR [--target-dir DIR]    build the wheel into DIR
    build.py --sdist-dir DIR --wheel-dir DIR       and the archive of its sources
    build.py --check                               only tell whether it can be tried

Prints one line: what was built, or why it was not. Exit codes: 0 done; 1 the build failed, and what it printed is
on standard error; 3 this machine lacks what a build needs. CARGO in the environment names the cargo to use.

Cargo before 1.70 reads the index of crates.io as a git repository of several hundred megabytes. Such a cargo (Debian
12 has 1.65) fetches the crates of Cargo.lock through the HTTP index, which it has as an unstable feature, and compiles
without unstable features afterwards.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parent
#: rust-version of Cargo.toml.
RUSTC_MIN = (1, 63)
#: The first cargo that uses the HTTP index by itself.
CARGO_HTTP_INDEX = (1, 70)
LACKING, FAILED = 3, 1
CONFIGURATION = """
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "{directory}"
"""


class Lacking(Exception):
    """This machine cannot build it; the message says what is missing."""


class Failed(Exception):
    """The build failed; the message is what the command printed."""


class Toolchain(NamedTuple):
    """The programs of a build."""

    cargo: Path
    cargo_version: tuple[int, int]
    rustc_version: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.cargo}, rustc {self.rustc_version[0]}.{self.rustc_version[1]}"


def find_toolchain(environment: Mapping[str, str]) -> Toolchain:
    """Cargo, and rustc beside it.

    Raises:
        Lacking: One of them, or the C compiler that links, is missing or too old.
    """
    path = environment.get("PATH", os.defpath)
    home = environment.get("CARGO_HOME") or os.path.join(environment.get("HOME", "/"), ".cargo")
    found = environment.get("CARGO") or shutil.which("cargo", path=f"{path}:{home}/bin")
    if not found:
        raise Lacking("cargo is not installed")
    cargo = Path(found)
    rustc = shutil.which("rustc", path=f"{cargo.parent}:{path}")
    if rustc is None:
        raise Lacking("rustc is not installed")
    if shutil.which("cc", path=path) is None:
        raise Lacking("no C compiler is installed, which rustc needs to link")
    toolchain = Toolchain(cargo, _version(str(cargo)), _version(rustc))
    if toolchain.rustc_version < RUSTC_MIN:
        raise Lacking(f"{toolchain} is older than {RUSTC_MIN[0]}.{RUSTC_MIN[1]}")
    return toolchain


def _version(program: str) -> tuple[int, int]:
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError as error:
        raise Lacking(f"{program} cannot be run: {error.strerror}") from error
    match = re.search(r" (\d+)\.(\d+)\.", answer)
    if match is None:
        raise Lacking(f"{program} --version does not state a version")
    return int(match[1]), int(match[2])


def build(
    toolchain: Toolchain, wheels: Path, target: Path, environment: Mapping[str, str], sources: Path | None = None
) -> Path:
    """Build the wheel into ``wheels``; ``target`` keeps what was compiled for the next time.

    With ``sources`` the archive of the sources is made there as well, without the crates.

    Raises:
        Failed: A command failed.
    """
    variables = dict(environment)
    programs = [str(toolchain.cargo.parent), sysconfig.get_path("scripts"), environment.get("PATH", os.defpath)]
    variables |= {"PATH": ":".join(programs), "CARGO": str(toolchain.cargo), "CARGO_TARGET_DIR": str(target)}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    if importlib.util.find_spec("maturin") is not None:
        command.append("--no-build-isolation")
    with tempfile.TemporaryDirectory(prefix="understudy-kernel-") as scratch:
        # a copy, so that files made by a build never get into the source tree
        source, fresh = Path(scratch) / "source", Path(scratch) / "wheels"
        shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("target", "__pycache__", "build.py"))
        if toolchain.cargo_version < CARGO_HTTP_INDEX:
            _vendor(toolchain, source, variables)
        _must([*command, "--wheel-dir", str(fresh), str(source)], variables, source)
        (wheel,) = fresh.glob("understudy_kernel-*.whl")
        if sources is not None:
            _archive(source, sources, variables)
        wheels.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, wheels))


def _archive(source: Path, sources: Path, variables: Mapping[str, str]) -> None:
    """Make the archive of the sources in a directory."""
    call = f"import maturin; maturin.build_sdist({str(sources)!r})"
    _must([sys.executable, "-c", call], variables, source)


def install(wheel: Path) -> None:
    """Install a wheel in the place of the one that is there.

    Raises:
        Failed: pip refused it.
    """
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _must([*pip, "--no-index", "--no-deps", "--force-reinstall", str(wheel)], os.environ, SOURCE)


def _vendor(toolchain: Toolchain, source: Path, variables: Mapping[str, str]) -> None:
    """Fetch the locked crates into the source tree and make cargo use nothing else."""
    unstable = {
        "RUSTC_BOOTSTRAP": "1",
        "CARGO_UNSTABLE_SPARSE_REGISTRY": "true",
        "CARGO_REGISTRIES_CRATES_IO_PROTOCOL": "sparse",
    }
    directory = source / "vendor"
    _must([str(toolchain.cargo), "vendor", "--quiet", "--locked", str(directory)], {**variables, **unstable}, source)
    (source / ".cargo").mkdir()
    (source / ".cargo/config.toml").write_text(CONFIGURATION.format(directory=directory))


def _must(command: Sequence[str], variables: Mapping[str, str], directory: Path) -> None:
    done = subprocess.run(command, env=variables, cwd=directory, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Build the wheel of understudy-kernel.")
    parser.add_argument("--wheel-dir", type=Path, help="directory for the wheel")
    parser.add_argument("--sdist-dir", type=Path, help="directory for the archive of the sources; default: none")
    parser.add_argument("--install", action="store_true", help="install the wheel for the interpreter that runs this")
    parser.add_argument("--target-dir", type=Path, help="where cargo keeps its work; default: a temporary directory")
    parser.add_argument("--check", action="store_true", help="only tell whether a build can be tried")
    options = parser.parse_args(arguments)
    if not (options.check or options.install or options.wheel_dir):
        parser.error("--install, --wheel-dir or --check is needed")
    try:
        toolchain = find_toolchain(os.environ)
        if options.check:
            print(toolchain)
            return 0
        with tempfile.TemporaryDirectory(prefix="understudy-kernel-") as scratch:
            target = (options.target_dir or Path(scratch)).resolve()
            wheels = (options.wheel_dir or Path(scratch) / "wheels").resolve()
            sources = options.sdist_dir and options.sdist_dir.resolve()
            wheel = build(toolchain, wheels, target, os.environ, sources)
            if options.install:
                install(wheel)
    except Lacking as lacking:
        print(f"understudy-kernel is not built: {lacking}; the broker runs the same functions in Python, slower")
        return LACKING
    except Failed as failed:
        print(failed, file=sys.stderr)
        print("understudy-kernel could not be built; the broker runs the same functions in Python, slower")
        return FAILED
    print(f"built {wheel.name} with {toolchain}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
