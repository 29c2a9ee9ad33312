"""Preparation of a suite before it runs: a copy of its sources, certificates, packages, a compiled program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from interop.suites091.definitions import Suite
from support.certificates import make

#: Version of the program that runs JUnit tests without Maven.
_LAUNCHER = "org.junit.platform:junit-platform-console-standalone:1.13.4"


class NotHad(Exception):
    """A suite cannot be run here."""


def directory_of(suite: Suite, scratch: Path) -> Path:
    """The copy of the sources in which a suite runs."""
    return scratch / "sources" / suite.name


def prepare(suite: Suite, sources: Path, scratch: Path) -> None:
    """Bring sources, packages and certificates of a suite.

    Raises:
        NotHad: the sources, a program or a package are missing; the message says which.
    """
    source, directory = sources / suite.name, directory_of(suite, scratch)
    if not source.is_dir():
        raise NotHad(f"no folder {source}: put {suite.repository} at {suite.commit[:12]} there")
    if suite.service and shutil.which(suite.service[0]) is None:
        raise NotHad(f"{suite.service[0]} is not installed")
    scratch.mkdir(parents=True, exist_ok=True)
    certificates(scratch)
    built = directory / ".built"
    if built.exists() and built.read_text() == suite.commit:
        return
    shutil.rmtree(directory, ignore_errors=True)
    if suite.project:
        shutil.copytree(Path(__file__).parent / suite.project, directory)
    shutil.copytree(source, directory / "sources" if suite.project else directory, symlinks=True)
    for path, folder in suite.beside.items():
        if not (sources / folder).is_dir():
            raise NotHad(f"no folder {sources / folder}")
        shutil.copytree(sources / folder, directory / path)
    for each in suite.replacements:
        path = directory / each.file
        text = path.read_text()
        if text.count(each.old) != 1:
            raise NotHad(f"{each.file} is not that of {suite.commit[:12]}: {each.old.strip()!r} is not in it once")
        path.write_text(text.replace(each.old, each.new))
    for left_out in suite.removed:
        (directory / left_out).unlink()
    for name, path_of in suite.certificates.items():
        shutil.copyfile(scratch / "tls" / f"{name}.pem", directory / path_of)
    {"pytest": _python, "go": _go, "junit": _java}[suite.kind](suite, directory, scratch)
    built.write_text(suite.commit)


def certificates(scratch: Path) -> None:
    """Make an authority, the certificate of the node and one of a client, once."""
    folder = scratch / "tls"
    if (folder / "server.pem").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    authority = make("CN=Authority of the suites,O=Understudy", authority=True)
    client = make("CN=guest,O=Understudy", authority)
    authority.write_certificate(folder / "authority.pem")
    (folder / "certificate.pem").write_bytes(client.pem)
    (folder / "key.pem").write_bytes(client.key_pem())
    make("CN=localhost,O=Understudy", authority).write(folder / "server.pem").chmod(0o600)


def _call(*command: str, cwd: Path) -> None:
    if shutil.which(command[0]) is None:
        raise NotHad(f"{command[0]} is not installed")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise NotHad(f"{' '.join(command[:4])} failed: {(done.stdout + done.stderr)[-400:].strip()}")


def _python(suite: Suite, directory: Path, scratch: Path) -> None:
    environment = scratch / "environments" / suite.name
    _call(sys.executable, "-m", "venv", "--clear", str(environment), cwd=directory)
    _call(str(environment / "bin" / "pip"), "install", "-q", *suite.packages, cwd=directory)


def _go(suite: Suite, directory: Path, scratch: Path) -> None:
    tags = [suite.arguments[at + 1] for at, each in enumerate(suite.arguments) if each == "-tags"]
    _call("go", "test", "-mod=mod", "-tags", ",".join(tags), "-c", "-o", "suite.test", ".", cwd=directory)


def _java(suite: Suite, directory: Path, scratch: Path) -> None:
    _call("mvn", "-q", "-B", "test-compile", cwd=directory)
    _call(
        "mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile=classpath", "-Dmdep.includeScope=test",
        cwd=directory,
    )  # fmt: skip
    _call("mvn", "-q", "-B", "dependency:copy", f"-Dartifact={_LAUNCHER}", "-DoutputDirectory=launcher", cwd=directory)
