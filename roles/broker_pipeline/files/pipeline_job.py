"""Runs one job of the data pipeline and keeps its report.

    python3 -I pipeline_job.py DEFINITION

The definition (``etc/jobs/NAME.json``) has the command, its environment and limits. One run of a job at a time. Each
run leaves in the directory of the job's reports, named by the time of its start:

* ``TIME.json``: when, how it ended, and what the job printed (its own report), written as a whole at the end;
  ``latest.json`` links to the newest one;
* ``TIME.log``: what the job wrote to standard error;
* files that the job itself wrote: ``{run}`` in an argument stands for ``REPORTS/TIME``.

Of the oldest runs all files are removed. An argument that begins with ``/`` and has ``*``, ``?`` or ``[`` stands for
all files that match, in order; none is an error. The exit code is that of the job, or 124: it took too long, 75:
another run goes on, 2: the definition or an argument cannot be used, 143: it was stopped. Standard library only, so
any python3 of the host can run it.
"""

import fcntl
import glob
import grp
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

EXIT_UNUSABLE, EXIT_BUSY, EXIT_TIMED_OUT, EXIT_STOPPED = 2, 75, 124, 143
FINDINGS = (1, 3)
"""Exit codes of jobs that have done their work and found something; they print a report then, a failure prints none."""
STOP_S = 30
LOG_LINES = 20
RESULT_BYTES_MAX = 64 * 1024 * 1024
RUN = re.compile(r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z")
MAGIC = re.compile(r"[*?[]")


class Unusable(Exception):
    """The definition or an argument cannot be used."""


def now_text(seconds):
    """Time of a run as its files are named: sorted by name is sorted by time."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(seconds))
    return f"{stamp}.{int(seconds * 1000) % 1000:03d}Z"


def read_definition(path):
    try:
        with open(path, encoding="utf-8") as source:
            return json.load(source)
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from error


def become(definition):
    """Become the user of the jobs, with the group that reads stores, if root runs this; a unit has done it already."""
    user, group = definition["user"], definition["group"]
    try:
        wanted = pwd.getpwnam(user) if user else None
        groups = [grp.getgrnam(group).gr_gid] if group else []
    except KeyError as error:
        raise Unusable(f"{definition['name']}: {error.args[0]}") from error
    if wanted is None or os.geteuid() == wanted.pw_uid:
        return
    if os.geteuid() != 0:
        raise Unusable(f"{definition['name']}: run it as the user {user}, or as root")
    os.setgroups(groups)
    os.setgid(wanted.pw_gid)
    os.setuid(wanted.pw_uid)


def expand(arguments, run):
    """Arguments with file names in place of patterns, and the files of this run in place of ``{run}``."""
    found = []
    for argument in arguments:
        text = argument.replace("{run}", run)
        if text.startswith("/") and MAGIC.search(text):
            names = sorted(glob.glob(text))
            if not names:
                raise Unusable(f"no file is named {text}")
            found.extend(names)
        else:
            found.append(text)
    return found


def prune(reports, keep):
    """Remove the files of all runs but the newest ones; the names of these runs."""
    runs = {}
    for name in os.listdir(reports):
        match = RUN.match(name)
        if match:
            runs.setdefault(match[0], []).append(name)
    victims = sorted(runs)[: max(0, len(runs) - keep)]
    for run in victims:
        for name in runs[run]:
            path = os.path.join(reports, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            else:
                os.unlink(path)
    return victims


def empty(directory):
    """Remove what a run that was killed has left in the job's own directory for Spark."""
    os.makedirs(directory, exist_ok=True)
    for entry in os.scandir(directory):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def write_whole(path, content):
    """A file that is there completely or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8") as target:
        json.dump(content, target, indent=2)
        target.write("\n")
        target.flush()
        os.fsync(target.fileno())
    os.replace(f"{path}.new", path)


class Run:
    """One run: the process, how it ended, and its report."""

    def __init__(self, definition, started):
        self.definition = definition
        self.started = started
        self.name = now_text(started)
        self.path = os.path.join(definition["reports"], self.name)
        self.child = None
        self.stopping = False

    def stop(self, *_):
        """Signal handler: ends the job, which ends its Spark."""
        self.stopping = True
        self.signal(signal.SIGTERM)
        signal.signal(signal.SIGALRM, lambda *_: self.signal(signal.SIGKILL))
        signal.alarm(STOP_S)

    def signal(self, number):
        if self.child is not None and self.child.returncode is None:
            try:
                os.killpg(self.child.pid, number)
            except ProcessLookupError:
                pass

    def execute(self, arguments):
        """Run the command to its end; its exit code."""
        definition = self.definition
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": definition["directory"], "LANG": "C.UTF-8"}
        environment.update(definition["environment"])
        with open(f"{self.path}.out", "wb") as output, open(f"{self.path}.log", "wb") as log:
            self.child = subprocess.Popen(
                definition["command"] + arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                cwd=definition["directory"],
                env=environment,
                start_new_session=True,
            )
            if self.stopping:  # the signal came before there was a process
                self.signal(signal.SIGTERM)
            return self.await_end(definition["timeout_s"])

    def await_end(self, timeout_s):
        try:
            code = self.child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGTERM)
            try:
                self.child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGKILL)
                self.child.wait()
            return EXIT_TIMED_OUT
        if self.stopping:
            return EXIT_STOPPED
        return code if code >= 0 else 128 - code

    def result(self):
        """What the job printed, or None if it is no JSON object."""
        try:
            if os.path.getsize(f"{self.path}.out") > RESULT_BYTES_MAX:
                return None
            with open(f"{self.path}.out", encoding="utf-8") as source:
                found = json.load(source)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def last_lines(self):
        try:
            with open(f"{self.path}.log", encoding="utf-8", errors="replace") as source:
                return [line.rstrip("\n") for line in source.readlines()[-LOG_LINES:]]
        except OSError:
            return []

    def report(self, code, arguments, error=""):
        """Write the report of the run, and link it as the newest."""
        definition, result = self.definition, self.result()
        outcomes = {0: "done", EXIT_TIMED_OUT: "timed out", EXIT_STOPPED: "stopped"}
        finding = code in FINDINGS and result is not None
        content = {
            "name": definition["name"],
            "job": definition["job"],
            "run": self.name,
            "seconds": round(time.time() - self.started, 3),
            "exit_code": code,
            "outcome": outcomes.get(code, "finding" if finding else "failed"),
            "accepted": code == 0 or code in definition["accepted_exit_codes"],
            "command": definition["command"] + arguments,
            "release": os.path.basename(os.path.realpath(os.path.dirname(os.path.dirname(definition["command"][0])))),
            "errors": [error] if error else self.last_lines(),
            "result": result,
        }
        write_whole(f"{self.path}.json", content)
        link = os.path.join(definition["reports"], "latest.json")
        if os.path.lexists(f"{link}.new"):
            os.unlink(f"{link}.new")
        os.symlink(f"{self.name}.json", f"{link}.new")
        os.replace(f"{link}.new", link)
        if result is not None and os.path.exists(f"{self.path}.out"):
            os.unlink(f"{self.path}.out")  # the report has it
        return content


def run_job(definition):
    """Run the job of a definition; its exit code."""
    os.umask(0o077)
    os.makedirs(definition["reports"], exist_ok=True)
    lock = os.open(os.path.join(definition["reports"], ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"{definition['name']}: another run of this job goes on", file=sys.stderr)
        return EXIT_BUSY
    run = Run(definition, time.time())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, run.stop)
    empty(definition["work"])
    arguments, error = [], ""
    try:
        arguments = expand(definition["arguments"], run.path)
        code = run.execute(arguments)
    except (Unusable, OSError) as problem:
        code, error = EXIT_UNUSABLE, str(problem)
    content = run.report(code, arguments, error)
    prune(definition["reports"], definition["keep"])
    for line in content["errors"]:
        print(line, file=sys.stderr)
    print(f"{definition['name']}: {content['outcome']}, exit code {code}, report {run.path}.json")
    return code


def main():
    if len(sys.argv) != 2:
        print("usage: pipeline_job.py DEFINITION", file=sys.stderr)
        return EXIT_UNUSABLE
    try:
        definition = read_definition(sys.argv[1])
        become(definition)
        return run_job(definition)
    except Unusable as error:
        print(error, file=sys.stderr)
        return EXIT_UNUSABLE


if __name__ == "__main__":
    sys.exit(main())
