"""Releases on a host: one virtual environment each under ``releases/``, and the link ``current`` to one of them.

A release is complete when its marker file is there; the marker is written last, so an interrupted installation is
rebuilt and never used. Everything comes from the wheelhouse archive: no package index is asked. The wheels of an
extra, which are large, stay under ``wheels/`` for the next release.
"""

from __future__ import annotations

import os
import platform
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]

MARKER = ".complete"
DISTRIBUTION = "understudy"
#: The client of ZooKeeper, so that every lock manager of a replicated pair can be used.
EXTRA = "zookeeper"
KERNEL_DISTRIBUTION = "understudy-kernel"
#: Which kernel a release runs on this host, as ``native`` or ``python`` and the reason.
KERNEL_FILE = "kernel.txt"
_KERNEL_QUESTION = "import understudy.kernel as k; print(k.ACTIVE, k.WHY)"


class ReleaseError(Exception):
    """A release cannot be installed or switched to; the message says why."""


@dataclass(frozen=True)
class Releases:
    """The releases below one root directory."""

    root: Path

    @property
    def directory(self) -> Path:
        return self.root / "releases"

    @property
    def link(self) -> Path:
        return self.root / "current"

    def path(self, release: str) -> Path:
        return self.directory / release

    def extra_wheels(self, name: str) -> Path:
        """Directory of the wheels of an extra, as the wheelhouse names them."""
        return self.root / "wheels" / name

    def take_extra(self, name: str, archive: Path) -> None:
        """Unpack the wheels of an extra; those of former ones are removed, because releases do not need them.

        Raises:
            ReleaseError: the archive has something else than wheels.
        """
        target = self.extra_wheels(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        for other in target.parent.iterdir():
            shutil.rmtree(other)
        fresh = target.with_name(f".{name}.new")
        fresh.mkdir()
        _unpack(archive, fresh)
        os.replace(fresh, target)

    def is_complete(self, release: str) -> bool:
        return (self.path(release) / MARKER).exists()

    def installed(self) -> list[str]:
        """Complete releases, the one completed last first."""
        markers = list(self.directory.glob(f"*/{MARKER}"))
        return [marker.parent.name for marker in sorted(markers, key=lambda path: path.stat().st_mtime, reverse=True)]

    def current(self) -> str:
        """The release that ``current`` points to, or an empty string."""
        return Path(os.readlink(self.link)).name if self.link.is_symlink() else ""

    def install(
        self, release: str, archive: Path, python: str, run: Run, *, extra: str = "", extra_name: str = ""
    ) -> None:
        """Make the virtual environment of ``release`` from the wheels in ``archive``.

        Args:
            release: its name.
            archive: wheels of the broker and all that it needs.
            python: interpreter of the host.
            run: runs a command.
            extra: optional dependencies to install as well.
            extra_name: name of their wheels, which ``take_extra`` has unpacked.

        Raises:
            ReleaseError: a step failed; what there is stays without its marker, and the next try starts over.
        """
        target = self.path(release)
        shutil.rmtree(target, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.root, prefix=".wheels-") as scratch:
            wheels = Path(scratch)
            _unpack(archive, wheels)
            installer = next(wheels.glob("pip-*.whl"), None)
            if installer is None:
                raise ReleaseError(f"{archive} holds no pip wheel")
            _must(run, [python, "-m", "venv", "--without-pip", str(target)])
            interpreter = str(target / "bin/python")
            options = ["--quiet", "--no-index", "--find-links", str(wheels), "--no-cache-dir"]
            # Root is right here: the environment belongs to root, and the broker's own user only reads it.
            options += ["--disable-pip-version-check", "--root-user-action=ignore"]
            extras = EXTRA
            if extra:
                options += ["--find-links", str(self.extra_wheels(extra_name))]
                extras = f"{EXTRA},{extra}"
            _must(run, [interpreter, f"{installer}/pip", "install", *options, f"{DISTRIBUTION}[{extras}]"])
            refused = ""
            if next(wheels.glob("understudy_kernel-*.whl"), None) is not None:
                # optional: on another platform than the controller's the same functions run in Python
                code, output, error = run(
                    [interpreter, f"{installer}/pip", "install", *options, "--no-deps", KERNEL_DISTRIBUTION]
                )
                refused = "" if code == 0 else _last_line(error or output)
            self._record_kernel(target, interpreter, refused, run)
            _must(run, [interpreter, "-m", "compileall", "-q", "-j", "0", str(target / "lib")])
        (target / MARKER).touch()

    def _record_kernel(self, target: Path, interpreter: str, refused: str, run: Run) -> None:
        """Note which kernel the release runs; ``refused`` is why its wheel could not be installed."""
        code, output, error = run([interpreter, "-c", _KERNEL_QUESTION])
        found = _last_line(output) if code == 0 else f"python {_last_line(error or output)}"
        if refused and not found.startswith("native"):
            found = f"{found}: its wheel is not for this platform ({_platform()}): {refused}"
        (target / KERNEL_FILE).write_text(found + "\n", encoding="utf-8")

    def kernel(self, release: str) -> tuple[str, str]:
        """``native`` or ``python``, and the reason; two empty strings for a release that is not installed."""
        try:
            words = (self.path(release) / KERNEL_FILE).read_text(encoding="utf-8").strip().split(" ", 1)
        except FileNotFoundError:
            return "", ""
        return words[0], words[1] if len(words) > 1 else ""

    def switch(self, release: str) -> None:
        """Point ``current`` to ``release``, in one step.

        Raises:
            ReleaseError: the release is not complete.
        """
        if not self.is_complete(release):
            raise ReleaseError(f"release {release} is not completely installed in {self.directory}")
        fresh = self.root / ".current.new"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path("releases") / release)
        os.replace(fresh, self.link)

    def surplus(self, keep: int, needed: Sequence[str]) -> list[str]:
        """The oldest releases beyond ``keep``; never the current one nor one of ``needed``."""
        others = [name for name in self.installed() if name != self.current() and name not in needed]
        return others[max(0, keep - 1) :]

    def remove(self, release: str) -> None:
        """Delete a release; the marker goes first, so that the rest is not taken for a whole one."""
        (self.path(release) / MARKER).unlink(missing_ok=True)
        shutil.rmtree(self.path(release))


def _unpack(archive: Path, target: Path) -> None:
    """Copy the wheels of ``archive`` into the directory ``target``.

    ``extractall(filter=...)`` is not used: Debian 12 has Python 3.11.2, and extraction filters came with 3.11.4. Only
    contents and base names are taken from the archive, so its owners, modes, links and paths have no effect.

    Raises:
        ReleaseError: the archive has a member that is not a wheel at its top level.
    """
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        for member in members:
            if not member.isfile() or "/" in member.name or not member.name.endswith(".whl"):
                raise ReleaseError(f"{archive} holds {member.name!r}, which is no wheel")
        for member in members:
            source = tar.extractfile(member)
            if source is None:
                raise ReleaseError(f"{archive}: {member.name!r} has no contents")
            with source, (target / member.name).open("xb") as copy:
                shutil.copyfileobj(source, copy)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def _platform() -> str:
    return " ".join((platform.machine(), *platform.libc_ver())).strip()


def _must(run: Run, command: Sequence[str]) -> None:
    code, output, error = run(command)
    if code != 0:
        lines = (error or output).strip().splitlines()[-20:]
        raise ReleaseError(f"{' '.join(command)} ended with {code}:\n" + "\n".join(lines))
