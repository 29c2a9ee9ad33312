"""The wheelhouse: every wheel an offline host needs, built once on the controller and named by what is in it.

A release is ``<version>-<digest12>``. The digest covers the broker's sources, the version of the Python it is built for
and the constraints, so the same sources give the same name and are built once, and a change of one byte gives another.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]

DIGEST_CHARACTERS = 12
SOURCES = ("pyproject.toml", "README.md", "src")
VERSION_FILE = "src/understudy/__init__.py"
_VERSION = re.compile(r"^__version__ = \"([0-9A-Za-z.+!_-]+)\"$", re.MULTILINE)
_SKIPPED_PARTS = frozenset({"__pycache__"})


class WheelhouseError(Exception):
    """It cannot be built; the message says what is missing and what pip answered."""


@dataclass(frozen=True)
class Wheelhouse:
    """One archive of wheels in the cache of the controller."""

    release: str
    version: str
    archive: Path
    sha256: str


def source_files(source: Path) -> list[Path]:
    """Files that end up in the wheel, by name, relative to ``source``.

    Raises:
        WheelhouseError: ``source`` is not the broker's source tree.
    """
    missing = [name for name in SOURCES if not (source / name).exists()]
    if missing:
        raise WheelhouseError(f"{source} is not the source of the broker: {', '.join(missing)} missing")
    files: list[Path] = []
    for name in SOURCES:
        top = source / name
        found: Iterable[Path] = top.rglob("*") if top.is_dir() else (top,)
        files.extend(path.relative_to(source) for path in found if path.is_file() and path.suffix != ".pyc")
    return sorted(path for path in files if not _SKIPPED_PARTS.intersection(path.parts))


def source_digest(source: Path, salts: Sequence[str]) -> str:
    """SHA-256 over names and contents of the sources, and over ``salts``."""
    digest = hashlib.sha256()
    for salt in salts:
        digest.update(f"{len(salt)}:{salt}".encode())
    for path in source_files(source):
        content = (source / path).read_bytes()
        digest.update(f"{len(path.as_posix())}:{path.as_posix()}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def source_version(source: Path) -> str:
    """``__version__`` of the sources.

    Raises:
        WheelhouseError: there is none.
    """
    match = _VERSION.search((source / VERSION_FILE).read_text(encoding="utf-8"))
    if match is None:
        raise WheelhouseError(f"{source / VERSION_FILE} states no __version__")
    return match[1]


def plan(source: Path, cache: Path, python_version: str, constraints: str) -> tuple[str, str, Path]:
    """Release name, version and archive path of these sources, built or not."""
    source_files(source)
    version = source_version(source)
    release = f"{version}-{source_digest(source, (python_version, constraints))[:DIGEST_CHARACTERS]}"
    return release, version, cache / f"understudy-{release}.tar"


def build(source: Path, archive: Path, python: str, constraints: str, run: Run) -> None:
    """Build all wheels with ``python -m pip`` and put them into ``archive``, in one step.

    pip itself is among them, so that a host needs neither pip nor ``python3-venv`` with its ensurepip.

    Raises:
        WheelhouseError: pip failed.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".build-") as scratch:
        wheels = Path(scratch) / "wheels"
        copy = Path(scratch) / "source"
        _copy_sources(source, copy)
        command = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(wheels)]
        if constraints:
            command += ["--constraint", constraints]
        code, output, error = run([*command, str(copy), "pip"])
        if code != 0:
            raise WheelhouseError(f"pip wheel ended with {code}:\n{_tail(error or output)}")
        packed = Path(scratch) / "archive.tar"
        _pack(wheels, packed)
        os.replace(packed, archive)


def _copy_sources(source: Path, target: Path) -> None:
    """Only what the digest covers, so that nothing else can get into the wheel."""
    for path in source_files(source):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, target / path)


def _pack(wheels: Path, target: Path) -> None:
    """A tar with the same bytes for the same wheels: by name, without owners and times."""

    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        member.mode = 0o644
        return member

    with tarfile.open(target, "w") as tar:
        for wheel in sorted(wheels.glob("*.whl")):
            tar.add(wheel, arcname=wheel.name, filter=anonymous)


def prune(cache: Path, keep: int, current: Path) -> list[str]:
    """Delete the archives not used for longest, all but ``keep`` and never ``current``; their names."""
    archives = sorted(cache.glob("understudy-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    victims = [path for path in archives if path != current][max(0, keep - 1) :]
    for path in victims:
        path.unlink(missing_ok=True)
    return [path.name for path in victims]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
