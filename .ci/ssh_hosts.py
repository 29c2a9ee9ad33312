#!/usr/bin/env python3
"""Run a command beside hosts that are reached by real ssh, as an unprivileged user that may use sudo.

    .ci/ssh_hosts.py HOSTS DIRECTORY COMMAND [ARGUMENT ...]
    .ci/ssh_hosts.py --check

Each host is a process with its own mount and process namespaces on this machine: a copy of /etc and empty /opt, /home,
/run and /var/log of its own, and the directory /srv/orders in common, mounted like a shared volume. All hosts share one
network namespace that has loopback addresses only, so no package index can be reached from them. Nothing listens for
ssh: the ProxyCommand of DIRECTORY/ssh_config starts ``sshd -i`` inside the host.

The hosts are named h1, h2, ...; the environment of COMMAND has UNDERSTUDY_SSH_CONFIG, the file for ``ssh -F``. When the
command has ended, the hosts and everything that runs in them are killed, and DIRECTORY is removed.

``--check`` sets nothing up. Exit code: that of the command; 77 where this machine cannot have such hosts, with the
reason as the last line.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

SKIPPED = 77
USER = "deploy"
PROGRAMS = ("/usr/sbin/sshd", "sudo", "ssh", "ssh-keygen", "unshare", "nsenter", "ip", "useradd")

# Runs as process 1 of a host: its own view of the file system, then nothing until it is killed.
HOST = """
set -e
mount --make-rprivate /
mount -t proc proc /proc
mount --bind "$1/etc" /etc
for place in opt home var/log; do mkdir -p "$1/$place" "/$place"; mount --bind "$1/$place" "/$place"; done
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd /srv
mount -t tmpfs -o mode=755 tmpfs /srv
mkdir /srv/orders
mount --bind "$2" /srv/orders
ip link set lo up
useradd --create-home --shell /bin/bash --password '*' "$3"
echo "$3 ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/understudy-test
chmod 440 /etc/sudoers.d/understudy-test
echo ready
exec sleep infinity
"""

SSHD = """
UsePAM no
StrictModes no
PasswordAuthentication no
AuthorizedKeysFile /etc/ssh/understudy_test_keys
HostKey {directory}/host_key
Subsystem sftp internal-sftp
"""

SSH = """
Host *
  User {user}
  IdentityFile {directory}/id
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""

SSH_HOST = """
Host {name}
  ProxyCommand nsenter --target {pid} --mount --pid --net /usr/sbin/sshd -i -f {directory}/sshd_config
"""


class CannotRun(Exception):
    """This machine cannot have such hosts; the message says why."""


def check_machine() -> None:
    """Raises CannotRun, naming everything that is missing."""
    if os.geteuid() != 0:
        raise CannotRun("hosts reached by ssh need root on this machine, for namespaces and their own users")
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        raise CannotRun(f"hosts reached by ssh need {', '.join(missing)}")
    probe = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "--make-rprivate", "/"],
        capture_output=True,
        text=True,
        check=False,
    )
    if probe.returncode != 0:
        raise CannotRun(f"hosts reached by ssh need namespaces, and unshare says: {probe.stderr.strip()}")


class Host:
    """One host: a process that holds its namespaces."""

    def __init__(self, name: str, directory: Path, shared: Path, network: Host | None) -> None:
        self.name = name
        own = directory / name
        own.mkdir()
        shutil.copytree("/etc", own / "etc", symlinks=True)
        # Here and not in the directory, which the user need not be able to reach.
        keys = own / "etc/ssh/understudy_test_keys"
        shutil.copy(directory / "id.pub", keys)
        keys.chmod(0o644)
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", HOST, "sh"]
        command += [str(own), str(shared), USER]
        if network is None:
            command.insert(1, "--net")
        else:
            command = ["nsenter", "--target", str(network.pid), "--net", *command]
        log = own / "log"
        with log.open("w") as errors:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            self.process.kill()
            self.process.wait()
            raise CannotRun(f"host {name} could not be set up: {log.read_text().strip()}")
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        self.pid = int(children[0])
        """Process 1 of the host, as this machine numbers it."""

    def end(self) -> None:
        """Kill process 1, and with it everything in the host."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()


def set_up(count: int, directory: Path) -> list[Host]:
    """The hosts, with keys and configuration for ssh in ``directory``."""
    for name in ("id", "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    (directory / "sshd_config").write_text(SSHD.format(directory=directory))
    shared = directory / "shared"
    shared.mkdir(mode=0o755)
    hosts: list[Host] = []
    config = SSH.format(directory=directory, user=USER)
    try:
        for number in range(1, count + 1):
            hosts.append(Host(f"h{number}", directory, shared, hosts[0] if hosts else None))
            config += SSH_HOST.format(name=hosts[-1].name, pid=hosts[-1].pid, directory=directory)
    except BaseException:
        for host in hosts:
            host.end()
        raise
    (directory / "ssh_config").write_text(config)
    return hosts


def main(arguments: list[str]) -> int:
    if len(arguments) < 3 and arguments != ["--check"]:
        print(__doc__)
        return 2
    try:
        check_machine()
    except CannotRun as reason:
        print(reason)
        return SKIPPED
    return 0 if arguments == ["--check"] else run(int(arguments[0]), Path(arguments[1]).resolve(), arguments[2:])


def run(count: int, directory: Path, command: list[str]) -> int:
    """The exit code of the command that was run beside the hosts."""
    hosts: list[Host] = []
    try:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True, mode=0o755)
        hosts = set_up(count, directory)
        environment = {**os.environ, "UNDERSTUDY_SSH_CONFIG": str(directory / "ssh_config")}
        return subprocess.run(command, env=environment, check=False).returncode
    except CannotRun as reason:
        print(reason)
        return SKIPPED
    finally:
        for host in hosts:
            host.end()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
