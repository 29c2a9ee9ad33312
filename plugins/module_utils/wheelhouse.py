"""The wheelhouse: every wheel an offline host needs, built once on the controller and named by what is in it.

A release is ``<version>-<digest12>-<machine>``. The digest covers the broker's sources, the version of the Python it is
built for, the constraints and the native kernel, so the same sources give the same name and are built once, and a
change of one byte gives another. ``machine`` is the architecture of the controller, which the wheels are for.

The native kernel (distribution ``understudy-kernel``, in ``kernel`` of the broker's sources) is optional: it is built
where the controller has cargo, once for its sources. Where it cannot be built, the release has none and the broker uses
the same functions in Python; why is part of the result.

A release may have an extra, such as ``spark``, whose wheels are hundreds of megabytes and change much less often
than the sources. They are an archive of their own, named by the requirements of the extra and by what else decides
which wheels they are, so a new release neither builds nor copies them again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]

DIGEST_CHARACTERS = 12
KERNEL_SOURCES = ("Cargo.lock", "Cargo.toml", "README.md", "build.py", "pyproject.toml", "src")
#: Exit code of kernel/build.py where the machine lacks what a build needs.
KERNEL_LACKING = 3
#: What cargo has compiled, in the cache: the next version then takes seconds.
KERNEL_TARGET = "kernel-target"
SOURCES = ("pyproject.toml", "README.md", "src")
#: Optional dependencies of the broker that a release has: the clients of ZooKeeper and of LDAP.
EXTRAS = "zookeeper,ldap"
#: Archives of extra wheels that stay in the cache.
EXTRA_ARCHIVES_KEPT = 2
VERSION_FILE = "src/understudy/__init__.py"
_VERSION = re.compile(r"^__version__ = \"([0-9A-Za-z.+!_-]+)\"$", re.MULTILINE)
_SKIPPED_PARTS = frozenset({"__pycache__"})


class WheelhouseError(Exception):
    """A wheelhouse cannot be built; the message says what is missing and what pip answered."""


@dataclass(frozen=True)
class Wheelhouse:
    """One archive of wheels in the cache of the controller."""

    release: str
    version: str
    archive: Path
    sha256: str


@dataclass(frozen=True)
class Kernel:
    """The native kernel of a release: a wheel, or the reason why there is none."""

    salt: str
    """What the name of the release depends on."""
    reason: str = ""
    """Empty if there is a wheel."""
    wheel: Path | None = None
    """None without one, and in check mode before it was built."""


def source_files(source: Path, names: Sequence[str] = SOURCES) -> list[Path]:
    """Files that end up in the wheel, by name, relative to ``source``.

    Raises:
        WheelhouseError: ``source`` is not the broker's source tree.
    """
    missing = [name for name in names if not (source / name).exists()]
    if missing:
        raise WheelhouseError(f"{source} is not the source of the broker: {', '.join(missing)} missing")
    files: list[Path] = []
    for name in names:
        top = source / name
        found: Iterable[Path] = top.rglob("*") if top.is_dir() else (top,)
        files.extend(path.relative_to(source) for path in found if path.is_file() and path.suffix != ".pyc")
    return sorted(path for path in files if not _SKIPPED_PARTS.intersection(path.parts))


def source_digest(source: Path, salts: Sequence[str], names: Sequence[str] = SOURCES) -> str:
    """SHA-256 over names and contents of the sources, and over ``salts``."""
    digest = hashlib.sha256()
    for salt in salts:
        digest.update(f"{len(salt)}:{salt}".encode())
    for path in source_files(source, names):
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


def make_kernel(source: Path, cache: Path, python: str, run: Run, *, check_mode: bool = False) -> Kernel:
    """The native kernel of these sources: from the cache, else built there.

    A build that failed is not tried again: ``kernel-<digest12>.failed`` in the cache keeps the reason.

    Args:
        source: Directory of the broker's sources.
        cache: Directory of the controller.
        python: Interpreter with pip.
        run: Runs a command.
        check_mode: Build nothing; say what would be.
    """
    top = source / "kernel"
    if not top.is_dir():
        return Kernel("python", f"{source} has no sources of the native kernel")
    digest = source_digest(top, (), KERNEL_SOURCES)[:DIGEST_CHARACTERS]
    built, failed = cache / f"kernel-{digest}", cache / f"kernel-{digest}.failed"
    wheel = next(built.glob("*.whl"), None)
    if wheel is not None:
        if not check_mode:
            os.utime(built)
        return Kernel(f"native {digest}", wheel=wheel)
    if failed.exists():
        return Kernel("python", f"{failed.read_text(encoding='utf-8').strip()} (to try again, remove {failed})")
    command = [python, str(top / "build.py")]
    if check_mode:
        code, output, error = run([*command, "--check"])
        return Kernel(f"native {digest}") if code == 0 else Kernel("python", _tail(output or error, 1))
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".kernel-") as scratch:
        code, output, error = run([*command, "--wheel-dir", scratch, "--target-dir", str(cache / KERNEL_TARGET)])
        if code == 0:
            shutil.copytree(scratch, built, dirs_exist_ok=True)
            return Kernel(f"native {digest}", wheel=next(built.glob("*.whl"), None))
    reason = _tail(output or error, 1)
    if code != KERNEL_LACKING:
        errors = [line.strip() for line in error.splitlines() if "error" in line.lower()]
        reason = f"{reason}: {errors[-1]}" if errors else reason
        failed.write_text(reason + "\n", encoding="utf-8")
    return Kernel("python", reason)


def plan(
    source: Path, cache: Path, python_version: str, constraints: str, machine: str, kernel: Kernel
) -> tuple[str, str, Path]:
    """Release name, version and archive path of these sources, built or not."""
    source_files(source)
    version = source_version(source)
    digest = source_digest(source, (python_version, constraints, kernel.salt, EXTRAS))[:DIGEST_CHARACTERS]
    release = f"{version}-{digest}-{machine}"
    return release, version, cache / f"understudy-{release}.tar"


@dataclass(frozen=True)
class Extra:
    """The wheels of an optional dependency of the broker."""

    name: str
    """Name of the archive without its suffix, ``EXTRA-<digest12>-<machine>``."""
    requirements: tuple[str, ...]
    archive: Path


def plan_extra(source: Path, cache: Path, extra: str, python_version: str, constraints: str, machine: str) -> Extra:
    """Which wheels an extra of these sources needs, and where their archive is, built or not.

    Raises:
        WheelhouseError: the sources have no such extra.
    """
    source_files(source)
    try:
        project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        requirements = tuple(project["optional-dependencies"][extra])
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise WheelhouseError(f"{source / 'pyproject.toml'} has no optional dependencies {extra!r}") from error
    digest = hashlib.sha256()
    for salt in (extra, python_version, constraints, *sorted(requirements)):
        digest.update(f"{len(salt)}:{salt}".encode())
    name = f"{extra}-{digest.hexdigest()[:DIGEST_CHARACTERS]}-{machine}"
    return Extra(name, requirements, cache / f"extra-{name}.tar")


def build_extra(extra: Extra, python: str, constraints: str, run: Run) -> None:
    """Build or fetch the wheels of an extra into its archive, in one step.

    Raises:
        WheelhouseError: pip failed.
    """
    _build_archive(extra.archive, python, constraints, run, extra.requirements)


def build(source: Path, archive: Path, python: str, constraints: str, run: Run, kernel: Kernel) -> None:
    """Build all wheels with ``python -m pip`` and put them into ``archive``, in one step.

    pip itself is among them, so that a host needs neither pip nor ``python3-venv`` with its ensurepip. So is the wheel
    of the native kernel, if there is one.

    Raises:
        WheelhouseError: pip failed.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".build-") as scratch:
        copy = Path(scratch) / "source"
        _copy_sources(source, copy)
        more = () if kernel.wheel is None else (kernel.wheel,)
        _build_archive(archive, python, constraints, run, (f"{copy}[{EXTRAS}]", "pip"), more)


def _build_archive(
    archive: Path, python: str, constraints: str, run: Run, requirements: Sequence[str], more: Sequence[Path] = ()
) -> None:
    """The wheels of requirements and of all that they need, and ``more`` wheels, in one archive."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".build-") as scratch:
        wheels = Path(scratch) / "wheels"
        command = [python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(wheels)]
        if constraints:
            command += ["--constraint", constraints]
        code, output, error = run([*command, *requirements])
        if code != 0:
            raise WheelhouseError(f"pip wheel ended with {code}:\n{_tail(error or output)}")
        for wheel in more:
            shutil.copy(wheel, wheels)
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
    extras = sorted(cache.glob("extra-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    victims += [path for path in extras if path != current][EXTRA_ARCHIVES_KEPT:]
    for path in victims:
        path.unlink(missing_ok=True)
    kernels = [path for path in cache.glob("kernel-*") if path.is_dir() and path.name != KERNEL_TARGET]
    for path in sorted(kernels, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
        shutil.rmtree(path, ignore_errors=True)
    return [path.name for path in victims]


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while block := source.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
