#!/usr/bin/env python3
"""Build the files of a release into a directory, which is emptied first.

    .ci/release.py OUTPUT [--without-kernel]

| file | contents |
|---|---|
| ``wheels/`` | wheels of the broker, of its native kernel, and of everything they need on this platform and Python |
| ``understudy-VERSION.tar.gz``, ``understudy_kernel-VERSION.tar.gz`` | their sources |
| ``understudy-broker-VERSION.tar.gz`` | the Ansible collection |
| ``sbom.cdx.json`` | the components of the wheels and the crates of the kernel, as CycloneDX |
| ``RELEASE-NOTES.md`` | the changes since the last release, from changelogs/fragments |
| ``SHA256SUMS`` | checksums of all files above |

Exit codes: 0 built; 1 a step failed, and its output is printed; 3 the native kernel cannot be built here.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.factory.license import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "broker" / "kernel"
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"
BINARIES = Path(sys.executable).parent
SUMS = "SHA256SUMS"


class Failed(Exception):
    """A command of a step failed; the message is its output."""


def run(*command: str | Path, cwd: Path = ROOT, accepted: tuple[int, ...] = (0,), **environment: str) -> int:
    """Run a command, with the programs of this environment first in its path.

    Raises:
        Failed: It ended with an exit code that is not accepted.
    """
    done = subprocess.run(
        [str(each) for each in command],
        cwd=cwd,
        env={**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode not in accepted:
        raise Failed(f"{' '.join(str(each) for each in command)}\n{done.stdout}")
    return done.returncode


def version() -> str:
    """The version of the package."""
    text = (ROOT / "broker/src/understudy/__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, re.MULTILINE)
    return str(found)


def build_wheels(output: Path, with_kernel: bool) -> int:
    """Build the wheels; returns the exit code of the build of the kernel, 3 if this machine lacks what it needs."""
    wheels = output / "wheels"
    pip = ("pip", "wheel", "--quiet", "--disable-pip-version-check", "-c", CONSTRAINTS)
    run(*pip, "--wheel-dir", wheels, ROOT / "broker")
    if not with_kernel:
        return 0
    builder = (sys.executable, KERNEL / "build.py", "--wheel-dir", wheels, "--sdist-dir", output)
    # the tag of the oldest distributions that it runs on, in the place of one that an index refuses
    portable = "--compatibility pypi"
    target = ROOT / ".scratch/kernel-target"
    return run(*builder, "--target-dir", target, accepted=(0, 3), MATURIN_PEP517_ARGS=portable)


def build_sources(output: Path) -> None:
    """Archive of the sources of the broker."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "broker"
        shutil.copytree(ROOT / "broker", copy, ignore=shutil.ignore_patterns("tests", "kernel", "__pycache__", "dist"))
        run(sys.executable, "-m", "build", "--sdist", "--outdir", output, copy, cwd=copy)


def build_collection(output: Path) -> None:
    """Archive of the Ansible collection."""
    run("ansible-galaxy", "collection", "build", "--force", "--output-path", output, ROOT)


def write_notes(output: Path) -> None:
    """Release notes from the fragments that no earlier release has."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch)
        shutil.copytree(ROOT / "changelogs", copy / "changelogs")
        shutil.copytree(ROOT / "plugins", copy / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "galaxy.yml", copy)
        changelog = "antsibull-changelog"
        if f"  {version()}:" not in (copy / "changelogs/changelog.yaml").read_text():
            run(changelog, "release", "--version", version(), cwd=copy)
        notes = output / "RELEASE-NOTES.md"
        run(changelog, "generate", "--only-latest", "--output-format", "md", "--output", notes, cwd=copy)
        notes.write_text(f"# Understudy {version()}\n\n{notes.read_text()}")


def components(wheels: Path) -> Iterator[Component]:
    """Components of the wheels, and the crates that are compiled into the kernel."""
    licenses = LicenseFactory()
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
            metadata = email.message_from_bytes(archive.read(name))
        stated = metadata["License-Expression"] or ""
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        yield Component(
            type=ComponentType.LIBRARY,
            name=metadata["Name"],
            version=metadata["Version"],
            description=metadata["Summary"],
            licenses=[licenses.make_from_string(stated)] if stated else (),
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            purl=PackageURL("pypi", None, metadata["Name"].lower(), metadata["Version"]),
            bom_ref=wheel.name,
        )
    if any(wheels.glob("understudy_kernel-*.whl")):
        for crate in tomllib.loads((KERNEL / "Cargo.lock").read_text())["package"]:
            if "checksum" in crate:
                yield Component(
                    type=ComponentType.LIBRARY,
                    name=crate["name"],
                    version=crate["version"],
                    hashes=[HashType(alg=HashAlgorithm.SHA_256, content=crate["checksum"])],
                    purl=PackageURL("cargo", None, crate["name"], crate["version"]),
                    bom_ref=f"crate-{crate['name']}-{crate['version']}",
                )


def write_components(output: Path) -> None:
    """Bill of materials of the release."""
    whole = Component(
        type=ComponentType.APPLICATION, name="understudy-release", version=version(), bom_ref="understudy-release"
    )
    bom = Bom(components=components(output / "wheels"))
    bom.metadata.component = whole
    bom.register_dependency(whole, bom.components)
    (output / "sbom.cdx.json").write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n")


def write_sums(output: Path) -> None:
    """Checksums as ``sha256sum --check`` reads them."""
    files = sorted(path for path in output.rglob("*") if path.is_file() and path.name != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(output)}\n" for path in files)
    (output / SUMS).write_text("".join(lines))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Build the files of a release.")
    parser.add_argument("output", type=Path, help="directory for the files; emptied first")
    parser.add_argument("--without-kernel", action="store_true", help="leave the native kernel out")
    options = parser.parse_args(arguments)
    output = options.output.resolve()
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    try:
        print(f"building the wheels into {output / 'wheels'}", flush=True)
        if build_wheels(output, not options.without_kernel):
            print("the native kernel cannot be built here: broker/kernel/build.py --check says why", file=sys.stderr)
            return 3
        print("building the archives of sources and of the collection", flush=True)
        build_sources(output)
        build_collection(output)
        print("writing release notes, bill of materials and checksums", flush=True)
        write_notes(output)
        write_components(output)
        write_sums(output)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    for path in sorted(path for path in output.rglob("*") if path.is_file()):
        print(f"  {path.relative_to(output)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
