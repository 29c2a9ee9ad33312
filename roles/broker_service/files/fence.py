"""Fences a host when the broker on it has been killed and does not end.

    python3 -I fence.py UNIT.service AFTER_S reboot
    python3 -I fence.py UNIT.service AFTER_S command COMMAND [ARGUMENT...]

A thread that waits uninterruptibly in the kernel, such as for the answer of a file server, keeps its process alive
after SIGKILL and after the broker's own HALT. The process confirms nothing any more but keeps its lock on the store, so
no backup takes over. This program watches all threads of the unit. A process counts as ending when one of its threads
has SIGKILL pending or is in the kernel's exit path. When a process has been ending for AFTER_S seconds, the host is
restarted at once, or the command is run, for instance one that asks a power controller. A command that fails is run
again after AFTER_S seconds.

Seconds are counted by looks, one in a second: a host that was paused as a whole does not count the pause.
A restart neither syncs nor unmounts, because both would wait for the same file server. Standard library only.
"""

import ctypes
import os
import subprocess
import sys
import time

LOOK_S = 1.0
COMMAND_TIMEOUT_S = 60.0
SIGKILL_BIT = 1 << 8
"""Signal 9 in the masks of /proc/PID/task/TID/status."""
PF_EXITING = 0x4
"""Flag of a thread in the exit path: field 9 of /proc/PID/task/TID/stat."""
RB_AUTOBOOT = 0x01234567


def is_ending(directory):
    """Whether the thread of a directory below /proc/PID/task still exists and has to end.

    A zombie does not count: it holds nothing but its exit code.
    """
    try:
        with open(f"{directory}/stat", "rb") as source:
            fields = source.read().rpartition(b")")[2].split()
        with open(f"{directory}/status", encoding="utf-8", errors="replace") as source:
            status = dict(line.split(":", 1) for line in source if ":" in line)
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has ended
    state, flags = fields[0], int(fields[6])
    if state in (b"Z", b"X"):
        return False
    pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
    return bool(pending & SIGKILL_BIT or flags & PF_EXITING)


def ending(cgroup, proc="/proc"):
    """Processes of a control group that have to end and have not, each as process id and start time."""
    try:
        with open(f"{cgroup}/cgroup.procs", encoding="ascii") as source:
            pids = source.read().split()
    except OSError:
        return set()  # the unit has no processes
    found = set()
    for pid in pids:
        try:
            threads = os.listdir(f"{proc}/{pid}/task")
            with open(f"{proc}/{pid}/stat", "rb") as source:
                started = source.read().rpartition(b")")[2].split()[19]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(is_ending(f"{proc}/{pid}/task/{thread}") for thread in threads):
            found.add((int(pid), int(started)))
    return found


class Watch:
    """Counts for how many looks in a row each process has been ending."""

    def __init__(self, looks):
        self.looks = looks
        self.seen = {}

    def due(self, found):
        """Processes that have now been ending for the whole time; counting begins again for these."""
        self.seen = {process: self.seen.get(process, 0) + 1 for process in found}
        due = sorted(pid for (pid, _started), count in self.seen.items() if count > self.looks)
        if due:
            self.seen = {}
        return due


def reboot():
    """Restarts the kernel at once."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.reboot(RB_AUTOBOOT):
        say(f"restart of the host: {os.strerror(ctypes.get_errno())}")


def run(command):
    """Runs the fencing command."""
    try:
        code = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=COMMAND_TIMEOUT_S, check=False).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"fencing command: {error}")
        return
    say(f"fencing command: exit code {code}")


def say(text):
    print(text, file=sys.stderr, flush=True)


def main(unit, after_s, action, *command):
    """Watches until the process is stopped."""
    watch = Watch(max(1, int(float(after_s) / LOOK_S)))
    cgroup = f"/sys/fs/cgroup/system.slice/{unit}"
    while True:
        due = watch.due(ending(cgroup))
        if due:
            pids = ", ".join(map(str, due))
            say(f"{unit}: killed {after_s} s ago and still there, process {pids}; fencing this host: {action}")
            if action == "reboot":
                reboot()
            else:
                run(command)
        time.sleep(LOOK_S)


if __name__ == "__main__":
    if (
        len(sys.argv) < 4
        or sys.argv[3] not in ("reboot", "command")
        or (sys.argv[3] == "command") != (len(sys.argv) > 4)
    ):
        sys.exit(__doc__)
    main(*sys.argv[1:])
