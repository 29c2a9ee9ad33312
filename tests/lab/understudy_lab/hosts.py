"""The hosts of a lab: boot, power cut, pause, ssh."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from understudy_lab.errors import LabError, run
from understudy_lab.image import Image
from understudy_lab.network import Network, address, connect
from understudy_lab.remote import TIMEOUT_S, Outcome, Remote

LARGEST = 20
"""Most hosts of a lab."""
BOOT_TIMEOUT_S = 120.0
SHUTDOWN_TIMEOUT_S = 120.0
DISK_BYTES = 4 << 30
"""Size of the sparse file that is the disk of a host."""
BLOCK = 512
SUPERVISOR = """
log=$1; shift
while :; do
    "$@"
    tail -n 3 "$log" | grep -q '^reboot: Restarting system' || break
done
"""
"""Starts the kernel again when the host reboots, as firmware does; ends when the host is switched off."""


@dataclass(frozen=True, slots=True)
class Host:
    """State of one host."""

    name: str
    address: str
    state: str
    """``running``, ``paused`` or ``off``."""
    pid: int
    """Process of its kernel on this machine; 0 while it is off."""


def number_of(name: str) -> int:
    """The number of a host by its name.

    Raises:
        LabError: no host has such a name.
    """
    if name[:1] == "h" and name[1:].isdecimal() and 1 <= int(name[1:]) <= LARGEST:
        return int(name[1:])
    raise LabError(f"{name}: hosts are named h1 to h{LARGEST}")


class Lab:
    """One lab.

    Args:
        directory: everything that it keeps; removed with the lab.
        name: distinguishes labs that run at the same time on this machine.
        image: kernel and disk of its hosts.
    """

    def __init__(self, directory: Path, name: str, image: Image) -> None:
        self.directory = directory.absolute()
        self.network = Network(f"understudy-{name}")
        self._note = self.directory / "image"
        # Hosts that run keep the image that they were made from.
        self.image = Image(self._note.resolve()) if self._note.exists() else image
        self._remote: Remote | None = None

    def names(self) -> list[str]:
        """All hosts that were created, in order."""
        found = (path.name for path in self.directory.glob("h[0-9]*") if path.is_dir())
        return sorted(found, key=number_of)

    def hosts(self) -> list[Host]:
        """The state of all hosts."""
        found = []
        for name in self.names():
            pid = self._kernel(name)
            state = "off" if not pid else "paused" if _state(pid) == "T" else "running"
            found.append(Host(name, address(number_of(name)), state, pid))
        return found

    def create(self, count: int, memory_mib: int = 512) -> None:
        """Hosts h1 to hN, each until it answers on its ssh port; those that run are left alone.

        Raises:
            LabError: a host did not boot within two minutes; the message has the end of its console.
        """
        if not 1 <= count <= LARGEST:
            raise LabError(f"{count} hosts: a lab has 1 to {LARGEST}")
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._note.exists():
            self._note.unlink(missing_ok=True)
            self._note.symlink_to(self.image.directory)
        (self.directory / "memory").write_text(f"{memory_mib}\n")
        self.network.create()
        self._write_ssh_files(count)
        self.start(f"h{number}" for number in range(1, count + 1))

    def start(self, names: Iterable[str]) -> None:
        """Boots hosts that are off, all at once, each until it answers on its ssh port."""
        begun = [name for name in names if self._boot(name)]
        for name in begun:
            self._await_ssh(name)

    def cut_power(self, name: str) -> None:
        """Ends a host at once: its page cache is lost, written blocks of its disk stay."""
        supervisor = self._supervisor(name)
        if supervisor:
            if self._remote is not None:
                self._remote.forget(number_of(name))
            os.kill(supervisor, signal.SIGKILL)  # its process namespace ends with it
            _await_end(supervisor)

    def shut_down(self, name: str, timeout_s: float = SHUTDOWN_TIMEOUT_S) -> None:
        """Switches a host off as its administrator does: systemd stops all services, then the kernel ends.

        Raises:
            LabError: it did not end within the time.
        """
        supervisor = self._supervisor(name)
        if supervisor:
            self.output(name, "systemctl poweroff --no-block")
            _await_end(supervisor, timeout_s)
            if self._remote is not None:
                self._remote.forget(number_of(name))

    def replace(self, name: str) -> None:
        """Cuts the power of a host, and boots another machine with empty disks under its name and address."""
        self.cut_power(name)
        (self.directory / name / "cow.img").unlink()
        shutil.rmtree(self.directory / name / "files")
        self.start([name])

    def pause(self, name: str) -> None:
        """Stops a host's kernel between two instructions; its clock does not notice."""
        os.kill(self._running(name), signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Lets a paused host go on."""
        os.kill(self._running(name), signal.SIGCONT)

    def destroy(self) -> None:
        """Switches all hosts off and removes everything of the lab; the image stays."""
        if self._remote is not None:
            self._remote.close()
        for name in self.names():
            self.cut_power(name)
        self.network.destroy()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def ssh_config(self) -> Path:
        """File for ``ssh -F``: names h1, h2, ... and the user ``deploy``."""
        return self.directory / "ssh_config"

    def execute(self, name: str, script: str, timeout_s: float = TIMEOUT_S) -> Outcome:
        """Runs a shell script as root on a host.

        Raises:
            LabError: the host cannot be reached, or the script did not end within the time.
        """
        if self._remote is None:
            self._remote = Remote(self.network.namespace, self.image.key, self.directory / "known_hosts")
        return self._remote.execute(number_of(name), script, timeout_s)

    def output(self, name: str, script: str, timeout_s: float = TIMEOUT_S) -> str:
        """Output of a script that must succeed on a host.

        Raises:
            LabError: it failed or did not end; the message has its output.
        """
        done = self.execute(name, script, timeout_s)
        if done.code:
            raise LabError(f"{name}: exit code {done.code}: {script[:120]}\n{done.output}")
        return done.output

    def _boot(self, name: str) -> bool:
        """Starts the kernel of a host that is off; whether it was."""
        if self._supervisor(name):
            return False
        number, place = number_of(name), self.directory / name
        place.mkdir(parents=True, exist_ok=True)
        self._write_identity(name)
        self._make_disk(place / "files")
        card = self.network.plug(number)
        memory = (self.directory / "memory").read_text().strip()
        kernel = [
            *("taskset", "--cpu-list", str(number % (os.cpu_count() or 1)), str(self.image.kernel)),
            *(f"mem={memory}M", "seccomp=on", f"umid={name}", f"uml_dir={place}/console", "root=/dev/ubda", "rw"),
            *(f"ubd0={place}/cow.img,{self.image.disk}", f"ubd7r={place}/identity.tar"),
            # gro=1: without it, the card drops the large packets that the bridge hands over.
            f"vec0:transport=raw,ifname={card},depth=128,gro=1,mac=02:00:00:00:00:{number:02x}",
            *("quiet", "con=null", "con0=null,fd:1", "ssl=null", "net.ifnames=0", "noreboot", "panic=1"),
            *("pty.legacy_count=0", f"systemd.machine_id={hashlib.md5(name.encode()).hexdigest()}"),
            *(f"systemd.hostname={name}", f"lab.name={name}", f"lab.address={address(number)}/24"),
            f"lab.files={place}/files",
        ]
        console = place / "console.log"
        command = [
            *("ip", "netns", "exec", self.network.namespace),
            *("unshare", "--pid", "--fork", "--kill-child=KILL"),
            *("sh", "-c", SUPERVISOR, "sh", str(console), *kernel),
        ]
        shutil.rmtree(place / "console", ignore_errors=True)
        with console.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "TMPDIR": "/dev/shm"},
                cwd=place,
            )
        (place / "pid").write_text(f"{process.pid}\n")
        return True

    def _await_ssh(self, name: str) -> None:
        deadline = time.monotonic() + BOOT_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                with connect(self.network.namespace, address(number_of(name)), 22, 1.0) as connection:
                    connection.settimeout(2.0)
                    if connection.recv(4) == b"SSH-":
                        return
            except OSError:
                time.sleep(0.1)
            if not self._supervisor(name):
                break
        console = (self.directory / name / "console.log").read_text(errors="replace").splitlines()
        raise LabError(f"{name} did not boot; the end of its console:\n" + "\n".join(console[-15:]))

    def _write_identity(self, name: str) -> None:
        """The ssh key and /etc/hosts of a host, on a disk of its own; whole blocks, as disks have them."""
        place = self.directory / name
        with tarfile.open(place / "identity.tar", "w") as archive:
            for suffix, mode in (("", 0o600), (".pub", 0o644)):
                content = Path(f"{self._host_key(name)}{suffix}").read_bytes()
                _add(archive, f"etc/ssh/ssh_host_ed25519_key{suffix}", content, mode)
            lines = ["127.0.0.1 localhost", *(f"{address(number)} h{number}" for number in range(1, LARGEST + 1))]
            _add(archive, "etc/hosts", "".join(f"{line}\n" for line in lines).encode(), 0o644)
        with (place / "identity.tar").open("ab") as file:
            file.truncate(-(-file.tell() // BLOCK) * BLOCK)

    @staticmethod
    def _make_disk(place: Path) -> None:
        """The second disk of a host, which it mounts at boot (guest/lab-init); kept from one boot to the next."""
        disk = place / "disk.img"
        if not disk.exists():
            place.mkdir(parents=True, exist_ok=True)
            with disk.open("wb") as file:
                file.truncate(DISK_BYTES)
            run(["mkfs.ext4", "-q", "-F", "-E", "root_owner=0:0", str(disk)])

    def _host_key(self, name: str) -> Path:
        path = self.directory / name / "host_key"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)])
        return path

    def _write_ssh_files(self, count: int) -> None:
        known, blocks = [], []
        proxy = f"{Path('/usr/bin/python3')} {Path(__file__).parent / 'proxy.py'} {self.network.namespace} %h %p"
        for number in range(1, count + 1):
            public = Path(f"{self._host_key(f'h{number}')}.pub").read_text().split()[:2]
            known.append(f"{address(number)},h{number} {' '.join(public)}\n")
            blocks.append(f"Host h{number}\n  HostName {address(number)}\n")
        common = {
            "User": "deploy",
            "IdentityFile": self.image.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.directory / "known_hosts",
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
            "ConnectTimeout": 5,
            "ServerAliveInterval": 3,
            "ServerAliveCountMax": 3,
            "ProxyCommand": proxy,
            "ProxyUseFdpass": "yes",
        }
        blocks.append("Host *\n" + "".join(f"  {key} {value}\n" for key, value in common.items()))
        (self.directory / "known_hosts").write_text("".join(known))
        self.ssh_config.write_text("".join(blocks))

    def _supervisor(self, name: str) -> int:
        """The process on this machine that holds a host; 0 while it is off."""
        try:
            pid = int((self.directory / name / "pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return 0
        # The number may belong to another process by now.
        return pid if str(self.directory / name).encode() in command and _state(pid) != "Z" else 0

    def _kernel(self, name: str) -> int:
        """The process of a host's kernel: child of the supervisor of ``unshare``; 0 while it is off."""
        pid = self._supervisor(name)
        for _level in range(2):
            children = _children(pid)
            pid = children[0] if children else 0
        return pid

    def _running(self, name: str) -> int:
        pid = self._kernel(name)
        if not pid:
            raise LabError(f"{name} is off")
        return pid


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _state(pid: int) -> str:
    """Letter of a process's state (proc(5)); ``Z`` also for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def _await_end(pid: int, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while _state(pid) != "Z":
        if time.monotonic() > deadline:
            raise LabError(f"process {pid} does not end")
        time.sleep(0.01)
