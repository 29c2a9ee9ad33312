"""Keeps one Understudy broker running where there is no systemd.

    python3 -I supervisor.py INSTANCE_DIRECTORY

Starts the command of ``etc/service.json``, writes who runs to ``run/supervisor.json``, and starts the command again
after a crash, waiting longer each time. It ends, and starts nothing any more, when

* ``run/hold`` exists: the broker was stopped or killed on purpose;
* the broker ended by itself with 0 (a clean stop) or 2 (bad configuration: trying again cannot help);
* it gets SIGTERM or SIGINT itself: it stops the broker cleanly first.

It does not check the health of the broker: a broker that has lost its store exits by itself and is restarted as after
any other failure. Standard library only, so any python3 of the host can run it whatever the releases are.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time

POLL_S = 0.2
LOG_BYTES_MAX = 64 * 1024 * 1024
EXITS_THAT_STAY = (0, 2)
EXIT_ALREADY_RUNNING = 3


def start_ticks(pid):
    """Start time of a process in clock ticks since boot (proc(5), field 22)."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        line = stat.read()
    return int(line[line.rindex(b")") + 1 :].split()[19])


def boot_id():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        return source.read().strip()


def restart_delay_s(failures, restart):
    """Seconds before the next start after so many failures in a row: doubles from the least to the most."""
    return min(restart["delay_max_s"], restart["delay_min_s"] * 2 ** min(failures - 1, 16))


class Supervisor:
    """One broker process, its record on disk, and whether it is to be started again."""

    def __init__(self, instance):
        self.run = os.path.join(instance, "run")
        self.instance = instance
        with open(os.path.join(instance, "etc", "service.json"), encoding="utf-8") as source:
            self.service = json.load(source)
        self.boot_id = boot_id()
        self.child = None
        self.child_record = None
        self.ending = False
        self.restarts = 0
        self.last_exit = None

    def held(self):
        return self.ending or os.path.exists(os.path.join(self.run, "hold"))

    def record(self, phase):
        """Replace ``run/supervisor.json`` in one step, so that a reader never sees half of it."""
        path = os.path.join(self.run, "supervisor.json")
        content = {
            "phase": phase,
            "supervisor": {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid()), "boot_id": self.boot_id},
            "broker": self.child_record,
            "restarts": self.restarts,
            "last_exit": self.last_exit,
        }
        with open(path + ".new", "w", encoding="utf-8") as target:
            json.dump(content, target)
        os.replace(path + ".new", path)

    def open_log(self):
        path = os.path.join(self.instance, "log", "understudy.log")
        if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES_MAX:
            os.replace(path, path + ".1")
        return open(path, "ab")

    def start(self):
        with self.open_log() as log:
            self.child = subprocess.Popen(
                self.service["command"],
                cwd=self.instance,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        pid = self.child.pid
        self.child_record = {"pid": pid, "start_ticks": start_ticks(pid), "boot_id": self.boot_id}
        self.record("running")

    def await_exit(self):
        """The broker's exit status; passes a SIGTERM of our own on to it, once."""
        told = False
        while self.child.poll() is None:
            if self.ending and not told:
                self.child.send_signal(signal.SIGTERM)
                told = True
            time.sleep(POLL_S)
        status = self.child.returncode
        self.child = self.child_record = None
        self.last_exit = {"status": status, "at_ms": time.time_ns() // 1_000_000}
        return status

    def await_restart(self, delay_s):
        self.record("waiting")
        until_s = time.monotonic() + delay_s
        while time.monotonic() < until_s and not self.held():
            time.sleep(POLL_S)

    def supervise(self):
        failures = 0
        restart = self.service["restart"]
        while not self.held():
            started_s = time.monotonic()
            try:
                self.start()
                status = self.await_exit()
            except OSError as error:
                self.last_exit = {"status": None, "error": str(error), "at_ms": time.time_ns() // 1_000_000}
                status = None
            if status in EXITS_THAT_STAY:
                break
            if time.monotonic() - started_s >= restart["reset_after_s"]:
                failures = 0
            failures += 1
            if not self.held():
                self.await_restart(restart_delay_s(failures, restart))
                if not self.held():
                    self.restarts += 1
        self.record("ended")


def main(arguments):
    if len(arguments) != 2:
        sys.stderr.write(__doc__)
        return 2
    instance = os.path.abspath(arguments[1])
    with open(os.path.join(instance, "run", "supervisor.lock"), "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return EXIT_ALREADY_RUNNING
        supervisor = Supervisor(instance)

        def end(_number, _frame):
            supervisor.ending = True

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        supervisor.supervise()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
