"""How a broker's process is started, stopped and killed: under systemd, or under the supervisor of this collection.

Both back ends offer ``status``, ``start``, ``stop``, ``kill`` and ``last_lines`` of the log. They do not wait for the
effect; the caller does. ``run/hold`` in the instance directory means "down on purpose" to both: the supervisor ends
when it sees it, and the unit has ``ConditionPathExists=!`` on it, so that neither undoes a kill.

The service definition ``etc/service.json`` is the one place that says how an instance is run; the modules read it and
need no other argument than the instance directory.
"""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.management import DIRECT, Access
from ansible_collections.understudy.broker.plugins.module_utils.process import (
    ProcessIdentity,
    ProcessTable,
    read_record,
)

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The broker's environment does not depend on whose session started it."""

PROCESS = "process"
SYSTEMD = "systemd"

UNIT_PROPERTIES = (
    "ActiveState,SubState,MainPID,NRestarts,Result,ExecMainStatus,ExecMainCode,AssertResult,AssertTimestampMonotonic"
)

LOG_FILE = "log/understudy.log"
"""What a supervised broker prints, relative to the instance directory."""
LOG_BYTES_MAX = 64 * 1024
"""How much of the end of a log file is looked at."""

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]
"""Runs a command and gives (return code, stdout, stderr)."""


class ServiceError(Exception):
    """The back end refused; the message says which command and what it answered."""


UNITS_DIRECTORY = Path("/etc/systemd/system")


def write_through(run: Run, paths: Sequence[Path]) -> None:
    """Has the file systems of these paths write everything to their disks.

    A broker that serves promises that its messages survive a power cut. Then its release, configuration and unit have
    to survive it too: a new file that was not synced is empty after one, and systemd takes an empty unit for masked.

    Args:
        run: runs ``sync`` of coreutils.
        paths: one on each file system; a missing path is left out, since what needs it reports it better.

    Raises:
        ServiceError: a disk failed.
    """
    command = ["sync", "--file-system", *(str(path) for path in paths if path.exists())]
    code, output, error = run(command)
    if code != 0:
        raise ServiceError(f"{' '.join(command)} ended with {code}: {error.strip() or output.strip()}")


@dataclass(frozen=True)
class ServiceStatus:
    """Whether the broker's process runs, and what systemd or the supervisor reports about it."""

    backend: str
    running: bool
    """The broker's own process is there."""
    kept: bool
    """A supervisor or systemd keeps it and would start it again."""
    pid: int | None = None
    restarts: int = 0
    held: bool = False
    last_exit: str = ""
    """How the process last ended, in words; empty if it has not."""

    @property
    def down(self) -> bool:
        """Nothing runs and nothing will start it again by itself."""
        return not self.running and not self.kept

    def as_dict(self) -> dict[str, object]:
        return {
            "backend": self.backend,
            "running": self.running,
            "kept": self.kept,
            "pid": self.pid,
            "restarts": self.restarts,
            "held": self.held,
            "last_exit": self.last_exit,
        }


@dataclass(frozen=True)
class ServiceDefinition:
    """What ``etc/service.json`` says."""

    name: str
    backend: str
    unit: str
    user: str
    command: tuple[str, ...]
    supervisor: tuple[str, ...]
    management_url: str
    token_file: str
    access: Access = DIRECT
    """How the management interface is reached; the key ``management_access``, which may be missing."""

    @classmethod
    def read(cls, instance: Path) -> ServiceDefinition | None:
        """The definition of an instance, or None where nothing has been deployed.

        Raises:
            ServiceError: the file is there but is no definition, or only root may read it.
        """
        path = instance / "etc/service.json"
        try:
            if not path.exists():
                return None
            record = read_record(path)
        except PermissionError as error:
            raise ServiceError(
                f"{path} cannot be read by user {os.geteuid()}, which Ansible is on this host; it needs root: set "
                "ansible_become: true for the hosts of the group broker"
            ) from error
        try:
            return cls(
                name=str(record["name"]),
                backend=str(record["backend"]),
                unit=str(record["unit"]),
                user=str(record["user"]),
                command=tuple(map(str, _list(record["command"]))),
                supervisor=tuple(map(str, _list(record["supervisor"]))),
                management_url=str(record["management_url"]),
                token_file=str(record["token_file"]),
                access=Access.from_record(_mapping(record.get("management_access", {}))),
            )
        except (KeyError, TypeError) as error:
            raise ServiceError(f"{path} is no service definition: {error}; deploy this host again") from error


def _mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise TypeError(f"a mapping was expected, not {type(value).__name__}")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"a list was expected, not {type(value).__name__}")
    return value


class SupervisedProcess:
    """The back end without systemd: ``supervisor.py`` and its record ``run/supervisor.json``."""

    def __init__(self, instance: Path, definition: ServiceDefinition, processes: ProcessTable, run: Run) -> None:
        self._instance = instance
        self._definition = definition
        self._processes = processes
        self._run = run
        self._account = account_of(definition) if definition.user and os.geteuid() == 0 else None
        """The account that root hands the process to; None if it stays with the user that starts it."""

    @property
    def _hold(self) -> Path:
        return self._instance / "run/hold"

    def _record(self) -> dict[str, object]:
        return read_record(self._instance / "run/supervisor.json")

    def _recorded(self, record: dict[str, object], key: str) -> ProcessIdentity | None:
        """The process that the record names under a key.

        The record belongs to the broker's user, so root believes it only about processes of that user: it must not be
        made to signal the process of another user.
        """
        identity = ProcessIdentity.from_record(record.get(key))
        if identity is None or self._account is None:
            return identity
        return identity if self._processes.is_owned_by(identity, self._account.pw_uid) else None

    def status(self) -> ServiceStatus:
        while True:
            record = self._record()
            broker = self._recorded(record, "broker")
            running = self._processes.is_alive(broker)
            kept = self._processes.is_alive(self._recorded(record, "supervisor"))
            # what ended meanwhile has been written down before: a status has it from one moment
            if record == self._record():
                break
        restarts = record.get("restarts")
        return ServiceStatus(
            backend=PROCESS,
            running=running,
            kept=kept,
            pid=broker.pid if running and broker is not None else None,
            restarts=restarts if isinstance(restarts, int) else 0,
            held=self._hold.exists(),
            last_exit=exit_in_words(record.get("last_exit")),
        )

    def start(self) -> None:
        self._hold.unlink(missing_ok=True)
        status = self.status()
        if status.running or status.kept:
            return
        write_through(self._run, [self._instance, Path(self._definition.command[0])])
        account: dict[str, object] = {}
        if self._account is not None:
            account = {"user": self._account.pw_uid, "group": self._account.pw_gid, "extra_groups": ()}
        subprocess.Popen(  # pylint: disable=consider-using-with
            [*self._definition.supervisor, str(self._instance)],
            cwd="/",
            env={"HOME": str(self._instance), "LANG": "C.UTF-8", "PATH": SEARCH_PATH},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **account,  # type: ignore[call-overload]
        )

    def stop(self) -> None:
        """Ask the broker to stop cleanly; the supervisor sees the hold and ends with it."""
        set_hold(self._hold)
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to the broker. The hold comes first, or the supervisor would start it again."""
        set_hold(self._hold)
        self._signal(signal.SIGKILL)

    def last_lines(self, count: int) -> list[str]:
        """The end of what the broker has printed; empty if there is nothing to read."""
        try:
            with open(self._instance / LOG_FILE, "rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_BYTES_MAX))
                return log.read().decode("utf-8", "replace").splitlines()[-count:]
        except OSError:
            return []

    def _signal(self, signal_number: signal.Signals) -> None:
        broker = self._recorded(self._record(), "broker")
        if broker is not None:
            self._processes.send(broker, signal_number)


class SystemdUnit:
    """The back end with systemd; ``run`` executes ``systemctl``."""

    def __init__(self, instance: Path, definition: ServiceDefinition, run: Run) -> None:
        self._instance = instance
        self._unit = definition.unit
        self._durable = [instance, Path(definition.command[0]), UNITS_DIRECTORY]
        self._run = run

    @property
    def _hold(self) -> Path:
        return self._instance / "run/hold"

    def _systemctl(self, *arguments: str) -> str:
        command = ["systemctl", *arguments, self._unit]
        code, output, error = self._run(command)
        if code != 0:
            raise ServiceError(f"{' '.join(command)} ended with {code}: {error.strip() or output.strip()}")
        return output

    def status(self) -> ServiceStatus:
        return parse_unit_status(self._systemctl("show", f"--property={UNIT_PROPERTIES}"), held=self._hold.exists())

    def start(self) -> None:
        self._hold.unlink(missing_ok=True)
        write_through(self._run, self._durable)
        self._systemctl("--no-block", "start")

    def stop(self) -> None:
        self._systemctl("--no-block", "stop")

    def kill(self) -> None:
        """SIGKILL to the broker. The hold comes first, or ``Restart=`` would start it again."""
        set_hold(self._hold)
        self._systemctl("kill", "--signal=SIGKILL")

    def last_lines(self, count: int) -> list[str]:
        """The end of the unit's journal; empty if it cannot be read."""
        command = ["journalctl", f"--unit={self._unit}", f"--lines={count}", "--output=cat", "--no-pager", "--quiet"]
        answer = self._run(command)
        return answer[1].splitlines()[-count:] if answer[0] == 0 else []


def open_service(instance: Path, definition: ServiceDefinition, run: Run) -> SupervisedProcess | SystemdUnit:
    """The back end that the definition names.

    Raises:
        ServiceError: it names none of ours.
    """
    if definition.backend == SYSTEMD:
        return SystemdUnit(instance, definition, run)
    if definition.backend == PROCESS:
        return SupervisedProcess(instance, definition, ProcessTable(), run)
    raise ServiceError(f"{instance}/etc/service.json names the unknown back end {definition.backend!r}")


def parse_unit_status(text: str, *, held: bool) -> ServiceStatus:
    """``systemctl show`` output as a status.

    ``activating`` with a main pid of 0 is a unit that waits for its next automatic start: kept, not running.
    """
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    pid = int(values.get("MainPID") or 0)
    state = values.get("ActiveState", "inactive")
    last_exit = ""
    if values.get("Result", "success") != "success":
        last_exit = f"{values['Result']}, status {values.get('ExecMainStatus', '?')}"
    elif state == "inactive" and values.get("AssertResult") == "no" and values.get("AssertTimestampMonotonic") != "0":
        # systemd leaves such a unit inactive and successful: nothing was executed. Without a time the assertions of the
        # unit have not been looked at since it was loaded.
        last_exit = "systemd did not start it, because an assertion of the unit failed: is its store mounted?"
    return ServiceStatus(
        backend=SYSTEMD,
        running=pid > 0,
        kept=state in ("active", "activating", "reloading", "deactivating"),
        pid=pid or None,
        restarts=int(values.get("NRestarts") or 0),
        held=held,
        last_exit=last_exit,
    )


def account_of(definition: ServiceDefinition) -> pwd.struct_passwd:
    """The account that the definition names.

    Raises:
        ServiceError: there is none of that name.
    """
    try:
        return pwd.getpwnam(definition.user)
    except KeyError as error:
        raise ServiceError(f"{definition.name} runs as {definition.user!r}, and this host has no such user") from error


def set_hold(path: Path) -> None:
    """Make the mark that keeps a broker down. Its directory is the broker's, so a link in its place is not followed."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))


def exit_in_words(record: object) -> str:
    """The supervisor's record of an exit, in words."""
    if not isinstance(record, dict):
        return ""
    status = record.get("status")
    if not isinstance(status, int):
        return f"could not be started: {record.get('error', 'no reason recorded')}"
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    return f"exited with {status}"
