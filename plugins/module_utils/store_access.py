"""What a user of this host may do with directories: read all of them, and write nothing.

Asked of the kernel, and of the server of a network file system, with ``access(2)`` in a process that has become the
user; nothing is opened or made.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.platforms import Platform, install_advice

ENTRIES_MAX = 20_000
"""Files and directories that are asked about, of each directory."""
JAVA_MAJOR_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?([0-9]{1,4})')

Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


def access_problems(directory: Path, *, check_writing: bool, limit: int = ENTRIES_MAX) -> list[str]:
    """Why this process cannot read all below a directory, or that it could write something; the first of each kind.

    Args:
        directory: where to begin.
        check_writing: whether a permission to write is a problem.
        limit: entries to ask about at most.
    """
    if not directory.is_dir():
        try:
            os.stat(directory)
        except PermissionError:
            return [f"{directory} cannot be reached"]
        except OSError as error:
            return [f"{directory}: {error.strerror}"]
        return [f"{directory} is no directory"]
    unreadable = writable = ""
    for asked, (path, wanted) in enumerate(_entries(directory), 1):
        # a broker that runs removes files meanwhile
        if not unreadable and not os.access(path, wanted) and os.path.lexists(path):
            unreadable = path
        if check_writing and not writable and os.access(path, os.W_OK):
            writable = path
        if asked >= limit or (unreadable and (writable or not check_writing)):
            break
    problems = [f"{unreadable} cannot be read"] if unreadable else []
    return problems + ([f"{writable} can be written"] if writable else [])


def _entries(directory: Path) -> Iterator[tuple[str, int]]:
    """A directory and all below it, but for symbolic links, with the permissions that reading needs."""
    yield str(directory), os.R_OK | os.X_OK
    # a directory that cannot be listed is yielded before, and has no entries here
    for top, directories, files in os.walk(directory):
        for names, wanted in ((directories, os.R_OK | os.X_OK), (files, os.R_OK)):
            for name in names:
                path = os.path.join(top, name)
                if not os.path.islink(path):
                    yield path, wanted


def as_user(user_id: int, group_id: int, groups: Sequence[int], ask: Callable[[], list[str]]) -> list[str]:
    """Call ``ask`` in a process that is the user with these groups, and nothing more.

    Raises:
        OSError: the process could not become the user, or ended without an answer.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            os.setgroups(list(groups))
            os.setresgid(group_id, group_id, group_id)
            os.setresuid(user_id, user_id, user_id)
            with os.fdopen(writing, "w") as target:
                json.dump(ask(), target)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as source:
        text = source.read()
    _pid, status = os.waitpid(child, 0)
    if status != 0:
        raise OSError(f"the access of user {user_id} could not be found out: its process ended with {status}")
    found = json.loads(text)
    return [str(each) for each in found]


def store_problems(user: str, groups: Sequence[int], directories: Sequence[Path]) -> list[str]:
    """What is wrong with the access of a user to directories; an empty name is the present user.

    Raises:
        KeyError: there is no such user.
        OSError: it could not be found out.
    """
    # root may write everything; as a deploying user it is no evidence about anything
    as_is = not user
    check_writing = not (as_is and os.geteuid() == 0)

    def ask() -> list[str]:
        return [each for path in directories for each in access_problems(path, check_writing=check_writing)]

    if as_is:
        return ask()
    entry = pwd.getpwnam(user)
    return as_user(entry.pw_uid, entry.pw_gid, groups, ask)


def java_found(
    java_home: str, search_path: Callable[[str], str | None], run: Run, platform: Platform
) -> tuple[str, int, str]:
    """The ``java`` that Spark would run, its version (0: unknown), and why it cannot be used; empty if it can."""
    needed = f"Spark needs Java {JAVA_MAJOR_MIN} or newer: {install_advice(platform, 'java')}"
    command = str(Path(java_home, "bin", "java")) if java_home else search_path("java") or ""
    if not command or not os.path.isfile(command):
        where = f"broker_pipeline_java_home has no {command}" if java_home else "there is no java on the PATH"
        return "", 0, f"{where}. {needed}, or set broker_pipeline_java_home to the home of one"
    code, output, error = run([command, "-version"])
    match = _VERSION.search(error + output)
    major = int(match[1]) if match else 0
    if code != 0 or major < JAVA_MAJOR_MIN:
        found = f"is version {major}" if major else "does not say its version"
        return command, major, f"{command} {found}. {needed}, or set broker_pipeline_java_home to the home of one"
    return command, major, ""
