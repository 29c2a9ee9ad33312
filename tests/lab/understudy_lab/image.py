"""The kernel and the disk image that all hosts start from, made once from Debian's archive and kept.

The image is kept in a directory named by a digest of its recipe, so that a changed recipe makes a new one and hosts
that run keep theirs. The kernel is user-mode Linux of Debian's unstable release: those of Debian 12 and 13 stop at boot
on processors with AMX, and without ``seccomp=on`` a system call costs twice as much. It needs a newer C library than
Debian 12 has, which is taken from Debian 13 and used for the kernel alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import CannotRun, LabError, run

CACHE = Path(os.environ.get("UNDERSTUDY_LAB_CACHE", "/var/cache/understudy-lab"))
GUEST = Path(__file__).resolve().parent.parent / "guest"
SIZE = "3G"
"""Size of a host's disk; the file is sparse, and hosts keep only what they change."""
TOOLS = {
    "debootstrap": "debootstrap",
    "patchelf": "patchelf",
    "mkfs.ext4": "e2fsprogs",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
}
"""Programs that the lab needs, each with its Debian package."""
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "kmod", "procps", "psmisc", "iproute2", "iputils-ping", "nftables"),
    *("openssh-server", "sudo", "python3", "python3-venv", "ca-certificates"),
    *("nfs-common", "nfs-kernel-server", "open-iscsi", "targetcli-fb", "e2fsprogs"),
    *("corosync", "dlm-controld", "gfs2-utils", "sg3-utils"),
)
"""Packages of a host; python3 is the interpreter that the broker runs with there."""
RECIPE = 1
"""To be raised with a change of the steps below that changes the image."""
RELEASES = {"12": "bookworm", "13": "trixie"}
"""Releases of Debian that the hosts can have, by their numbers."""
DEFAULT_RELEASE = "12"
PYTHONS = {"12": "3.11", "13": "3.13"}
"""The interpreter of each release, which the wheels of a deployment have to be for."""
KERNEL_RELEASE, LIBRARY_RELEASE = "sid", "trixie"
SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Image:
    """Paths of one image."""

    directory: Path

    @property
    def release(self) -> str:
        """Number of the hosts' release of Debian."""
        return self.directory.name.partition("-")[0].removeprefix("debian")

    @property
    def kernel(self) -> Path:
        return self.directory / "linux"

    @property
    def disk(self) -> Path:
        return self.directory / "disk.img"

    @property
    def key(self) -> Path:
        """Private ssh key that root and the user ``deploy`` of every host accept."""
        return self.directory / "id"

    @property
    def complete(self) -> bool:
        return (self.directory / "complete").exists()


def check() -> None:
    """Whether this machine can run a lab.

    Raises:
        CannotRun: it cannot; the message names the reason.
    """
    if os.geteuid() != 0:
        raise CannotRun("lab hosts need root: network namespaces and raw sockets")
    if os.uname().machine != "x86_64":
        raise CannotRun(f"lab hosts need an x86_64 machine, this one is {os.uname().machine}")
    missing = sorted(package for program, package in TOOLS.items() if shutil.which(program, path=SEARCH) is None)
    if missing:
        raise CannotRun(f"lab hosts need the Debian packages {', '.join(missing)}: apt-get install {' '.join(missing)}")


def present(release: str = DEFAULT_RELEASE, cache: Path = CACHE) -> Image:
    """The image of the present recipe, whether or not it has been made.

    Args:
        release: of Debian, a key of ``RELEASES``.
        cache: directory of all images.
    """
    digest = hashlib.sha256(repr((RECIPE, SIZE, PACKAGES, KERNEL_RELEASE, LIBRARY_RELEASE)).encode())
    for path in sorted(GUEST.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return Image(cache / f"debian{release}-{digest.hexdigest()[:12]}")


def make(progress: Callable[[str], None], release: str = DEFAULT_RELEASE, cache: Path = CACHE) -> Image:
    """The image of the present recipe, made unless it is there; takes about four minutes.

    Args:
        progress: is given a line for each step.
        release: of Debian, a key of ``RELEASES``.
        cache: directory of all images.

    Raises:
        CannotRun: this machine cannot run a lab.
        LabError: a step failed; the next call goes on after the last finished one.
    """
    check()
    image = present(release, cache)
    if image.complete:
        return image
    image.directory.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        if not image.complete:
            _make(image, progress)
            _remove_others(image, cache)
    return image


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file, so that two commands do not make the same thing at once."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(image: Image, progress: Callable[[str], None]) -> None:
    place = image.directory
    progress("kernel: from Debian's archive")
    modules = _kernel(place)
    root = place / "root"
    if not (root / "etc" / "debian_version").exists():
        shutil.rmtree(root, ignore_errors=True)
        progress(f"root file system: debootstrap of {len(PACKAGES)} packages, about three minutes")
        fresh = place / "root.new"
        shutil.rmtree(fresh, ignore_errors=True)
        options = ["--variant=minbase", f"--include={','.join(PACKAGES)}"]
        command = ["debootstrap", *options, RELEASES[image.release], str(fresh), _mirror()]
        run(command, env={**os.environ, "PATH": SEARCH})
        fresh.rename(root)
    progress("disk image")
    shutil.rmtree(root / "lib" / "modules", ignore_errors=True)
    (root / "usr" / "lib" / "modules").mkdir(parents=True, exist_ok=True)
    for version in modules.iterdir():
        shutil.copytree(version, root / "usr" / "lib" / "modules" / version.name, symlinks=True)
        run(["chroot", str(root), "/sbin/depmod", version.name])
    if not image.key.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(image.key)])
    run(["bash", str(GUEST / "prepare"), str(root), str(GUEST), f"{image.key}.pub"])
    with image.disk.open("wb") as disk:
        disk.truncate(0)
    run(["truncate", "--size", SIZE, str(image.disk)])
    # An older feature set: the hosts need no checksums, and a disk that is initialised at once never writes later.
    features = ["-m", "0", "-E", "lazy_itable_init=1,lazy_journal_init=1", "-O", "^metadata_csum"]
    run(["/sbin/mkfs.ext4", "-q", "-F", *features, "-d", str(root), str(image.disk)])
    shutil.rmtree(root)
    (place / "complete").touch()


def package(image: Image, name: str) -> Path:
    """A package of the hosts' release of Debian, downloaded once for an image.

    Raises:
        LabError: the archive does not have it.
    """
    directory = image.directory / "packages"
    directory.mkdir(exist_ok=True)
    if not list(directory.glob(f"{name}_*.deb")):
        options = _archive(directory / "apt", RELEASES[image.release])
        run(["apt-get", *options, "download", name], cwd=directory)
    return sorted(directory.glob(f"{name}_*.deb"))[-1]


def _archive(apt: Path, *releases: str) -> list[str]:
    """Options of apt-get for releases that this machine need not have; their lists are brought up to date.

    Args:
        apt: directory for what apt keeps.
        releases: of Debian.
    """
    for directory in (apt / "lists" / "partial", apt / "cache" / "archives" / "partial"):
        directory.mkdir(parents=True, exist_ok=True)
    keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
    lines = [f"deb [signed-by={keyring}] {_mirror()} {release} main\n" for release in releases]
    (apt / "sources.list").write_text("".join(lines))
    places = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt / "cache",
        "APT::Sandbox::User": "root",
    }
    options = [part for name, value in places.items() for part in ("-o", f"{name}={value}")]
    run(["apt-get", *options, "update", "-q"])
    return options


def _kernel(place: Path) -> Path:
    """The kernel, able to run on this machine; its modules."""
    apt = place / "apt"
    (place / "library").mkdir(parents=True, exist_ok=True)
    options = _archive(apt, KERNEL_RELEASE, LIBRARY_RELEASE)
    wanted = [f"user-mode-linux/{KERNEL_RELEASE}", f"libc6/{LIBRARY_RELEASE}"]
    run(["apt-get", *options, "download", *wanted], cwd=apt)
    for name, target in (("user-mode-linux", "kernel"), ("libc6", "library")):
        (package,) = sorted(apt.glob(f"{name}_*.deb"))[-1:]
        run(["dpkg-deb", "-x", str(package), str(apt / target)])
    for name in ("ld-linux-x86-64.so.2", "libc.so.6"):
        shutil.copy(next((apt / "library" / "usr" / "lib" / "x86_64-linux-gnu").glob(name)), place / "library" / name)
    kernel = place / "linux"
    shutil.copy(apt / "kernel" / "usr" / "bin" / "linux.uml", kernel)
    loader = ["--set-interpreter", str(place / "library" / "ld-linux-x86-64.so.2")]
    run(["patchelf", *loader, "--set-rpath", str(place / "library"), str(kernel)])
    return apt / "kernel" / "usr" / "lib" / "uml" / "modules"


def _mirror() -> str:
    """Address of the Debian archive that this machine uses.

    Raises:
        LabError: apt has none.
    """
    for line in run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)"]).splitlines():
        address, _blank, release = line.partition(" ")
        if "security" not in address and "security" not in release:
            return address
    raise LabError("apt-get indextargets: no archive in the sources of apt; a lab needs Debian's")


def _remove_others(image: Image, cache: Path) -> None:
    """Images of the same release by older recipes that no host uses: a running host has its disk file open."""
    for other in cache.glob(f"debian{image.release}-*"):
        if other != image.directory and not _in_use(other):
            shutil.rmtree(other, ignore_errors=True)


def _in_use(directory: Path) -> bool:
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(directory).encode() in command.read_bytes():
                return True
        except OSError:
            continue  # the process has ended
    return False
