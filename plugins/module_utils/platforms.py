"""What differs between the platforms of hosts: one table, read by modules on the hosts and by way of their results.

A family is one release of a distribution and those that are built from it. The page ``docs/operate/platforms.md`` is
generated from this table.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OS_RELEASE = Path("/etc/os-release")
"""Names the platform of a host (os-release(5))."""
PROGRAMS = ("python", "nfs4", "gfs2", "ext4", "xfs", "nftables", "java", "restorecon", "zookeeper")
"""What a host may need from packages of its distribution; names of file systems stand for what mounts them."""


@dataclass(frozen=True)
class Platform:
    """What the collection has to know of one family."""

    name: str
    title: str
    ids: Sequence[str]
    """Values of ``ID`` in os-release, and of ``ID_LIKE`` of those that are built from it."""
    version: str
    """Begin of ``VERSION_ID``; ``12`` also stands for ``12.5``."""
    python_version: str
    """Minor version of ``interpreter``."""
    interpreter: str
    """Name of an interpreter that the broker runs with, 3.11 or later."""
    packages: Mapping[str, str]
    """Name of the package with each of ``PROGRAMS``; empty where the family has none or needs none."""
    firewalld: bool
    """Whether firewalld runs beside the tables of the collection, unless an administrator has changed that."""
    selinux: bool
    """Whether SELinux is enforcing, unless an administrator has changed that."""
    run: str = ""
    """How the family was run; empty: it was not."""


def _debian(java: str, python: str = "python3") -> dict[str, object]:
    """The fields that releases of Debian and Ubuntu share."""
    return {
        "interpreter": python,
        "packages": {
            "python": python,
            "nfs4": "nfs-common",
            "gfs2": "gfs2-utils",
            "ext4": "e2fsprogs",
            "xfs": "xfsprogs",
            "nftables": "nftables",
            "java": java,
            "restorecon": "policycoreutils",
            "zookeeper": "zookeeperd",
        },
        "firewalld": False,
        "selinux": False,
    }


PLATFORMS: Sequence[Platform] = (
    Platform(
        name="debian12",
        title="Debian 12",
        ids=("debian",),
        version="12",
        python_version="3.11",
        **_debian("openjdk-17-jre-headless"),  # type: ignore[arg-type]
        run="booted, all lab tests, rolled under load",
    ),
    Platform(
        name="debian13",
        title="Debian 13",
        ids=("debian",),
        version="13",
        python_version="3.13",
        **_debian("openjdk-21-jre-headless"),  # type: ignore[arg-type]
        run="booted, both kinds of pairs deployed, rolled under load and removed, monitoring installed",
    ),
    Platform(
        name="ubuntu2204",
        title="Ubuntu 22.04",
        ids=("ubuntu",),
        version="22.04",
        python_version="3.11",
        **_debian("openjdk-17-jre-headless", "python3.11"),  # type: ignore[arg-type]
    ),
    Platform(
        name="ubuntu2404",
        title="Ubuntu 24.04",
        ids=("ubuntu",),
        version="24.04",
        python_version="3.12",
        **_debian("openjdk-17-jre-headless"),  # type: ignore[arg-type]
    ),
    Platform(
        name="el9",
        title="RHEL, Rocky Linux and AlmaLinux 9",
        ids=("rhel", "rocky", "almalinux", "centos"),
        version="9",
        python_version="3.12",
        interpreter="python3.12",
        packages={
            "python": "python3.12",
            "nfs4": "nfs-utils",
            "gfs2": "gfs2-utils",
            "ext4": "e2fsprogs",
            "xfs": "xfsprogs",
            "nftables": "nftables",
            "java": "java-17-openjdk-headless",
            "restorecon": "policycoreutils",
            "zookeeper": "",
        },
        firewalld=True,
        selinux=True,
    ),
    Platform(
        name="suse15",
        title="SUSE Linux Enterprise Server 15 and openSUSE Leap 15",
        ids=("suse", "sles", "opensuse-leap", "opensuse"),
        version="15",
        python_version="3.11",
        interpreter="python3.11",
        packages={
            "python": "python311",
            "nfs4": "nfs-client",
            "gfs2": "gfs2-utils",
            "ext4": "e2fsprogs",
            "xfs": "xfsprogs",
            "nftables": "nftables",
            "java": "java-17-openjdk-headless",
            "restorecon": "policycoreutils",
            "zookeeper": "",
        },
        firewalld=True,
        selinux=False,
    ),
)

OTHER = Platform(
    name="other",
    title="another platform",
    ids=(),
    version="",
    python_version="",
    interpreter="python3",
    packages=dict.fromkeys(PROGRAMS, ""),
    firewalld=False,
    selinux=False,
)
"""A host whose platform has no row: nothing but the standard names is known of it."""


def fields(text: str) -> dict[str, str]:
    """The assignments of an os-release file."""
    found = {}
    for line in text.splitlines():
        name, separator, value = line.strip().partition("=")
        if separator and not name.startswith("#"):
            try:
                found[name] = "".join(shlex.split(value))
            except ValueError:
                found[name] = value
    return found


def platform_of(os_release: str) -> Platform:
    """The row of a host; ``OTHER`` if none is for it.

    A distribution that is built from another one (``ID_LIKE``) takes its row if the version is the same.

    Args:
        os_release: text of ``/etc/os-release``; empty if the host has none.
    """
    found = fields(os_release)
    version = found.get("VERSION_ID", "")
    for name in (found.get("ID", ""), *found.get("ID_LIKE", "").split()):
        for platform in PLATFORMS:
            if name in platform.ids and (version == platform.version or version.startswith(f"{platform.version}.")):
                return platform
    return OTHER


def install_advice(platform: Platform, program: str) -> str:
    """What an administrator installs for a program: ``install the package nfs-common``."""
    package = platform.packages[program]
    if not package:
        return f"install the package of this distribution that has it ({program})"
    return f"install the package {package}"


def as_dict(platform: Platform) -> dict[str, object]:
    """A row as a module returns it; ``install`` is the advice for each program."""
    return {**asdict(platform), "install": {name: install_advice(platform, name) for name in PROGRAMS}}


def this_host(os_release: Path = OS_RELEASE) -> Platform:
    """The row of the host that this runs on."""
    try:
        text = os_release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return platform_of(text)


def of_this_host() -> dict[str, object]:
    """The row of this host, as a module returns it."""
    return as_dict(this_host())
