# SPDX-License-Identifier: Apache-2.0
"""Jobs of the data pipeline: what an inventory says of them, judged and completed to definitions that a host runs.

A definition is a JSON object, the one thing that ``pipeline_job.py`` on the host reads; the unit of a job only names
it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

JOBS = ("archive", "audit", "consolidate", "flow", "replay", "verdict")
KEYS = (
    *("name", "job", "arguments", "schedule", "master", "memory_mib", "timeout_s", "keep", "on_failure"),
    "accepted_exit_codes",
)
GIVEN = ("--json", "--master", "--work-dir", "--password-file")
"""Options that a definition has anyway."""
NO_PATHS = ("--address", "--filter", "--server", "--to-address", "--url")
"""Options whose values are no paths."""
DRILL = "drill"
"""Name of the job that judges the ledgers of a drill."""
MEMORY_MIB, MEMORY_MIB_MIN = 4096, 1024
TIMEOUT_S = 6 * 3600
KEEP_HOURS_MAX = 24 * 366
"""Limit of ``understudy pipeline archive --keep-hours``."""
STOP_S = 90
"""Seconds that systemd waits longer than the job is given, so that its report says that its time ended."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_UNIT = re.compile(r"[A-Za-z0-9:_.@%\\-]+\.(?:service|target|path|socket|timer)")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_PASSWORD = re.compile(r"[?&;]\s*(?:password|\w*Password)=|//[^/@\s]*:[^/@\s]*@")


class Unusable(ValueError):
    """A job that cannot be set up; the message names it."""


def definitions(jobs: Sequence[Mapping[str, object]], settings: Mapping[str, object]) -> list[dict[str, object]]:
    """All jobs of a host, the one that judges drills included if it is wanted.

    Args:
        jobs: as the inventory lists them.
        settings: ``root``, ``directory``, ``python``, ``master``, ``java_home``, ``keep``, ``archive_keep_hours``,
            ``backend``, ``unit_prefix``, ``url``, ``system_user``, ``reader_group``, ``user``, ``drill``: values of
            the role.

    Raises:
        Unusable: a job cannot be set up.
    """
    if not isinstance(jobs, Sequence) or isinstance(jobs, str):
        raise Unusable("broker_pipeline_jobs must be a list")
    if not 0 <= int(str(settings["archive_keep_hours"])) <= KEEP_HOURS_MAX:
        raise Unusable(
            f"broker_pipeline_archive_keep_hours is {settings['archive_keep_hours']}; give 0 to {KEEP_HOURS_MAX}"
        )
    found = []
    seen = {DRILL} if settings["drill"] else set()
    for index, job in enumerate(jobs):
        if not isinstance(job, Mapping):
            raise Unusable(f"broker_pipeline_jobs[{index}] is a {type(job).__name__}; give a mapping")
        name = str(job.get("name", ""))
        problem = next(_problems(job), "")
        if problem:
            raise Unusable(f"broker_pipeline_jobs[{index}] ({name or 'without a name'}): {problem}")
        if name in seen:
            raise Unusable(f"broker_pipeline_jobs[{index}]: the name {name!r} is taken")
        seen.add(name)
        found.append(_definition(job, settings))
    if settings["drill"]:
        found.append(_definition(_drill_job(settings), settings))
    return found


def _drill_job(settings: Mapping[str, object]) -> dict[str, object]:
    ledgers = f"{settings['directory']}/{DRILL}/*.jsonl"
    return {"name": DRILL, "job": "audit", "arguments": ["--report={run}.jsonl", "--html={run}.html", ledgers]}


def _problems(job: Mapping[str, object]) -> Iterator[str]:
    unknown = sorted(str(key) for key in job if key not in KEYS)
    if unknown:
        yield f"has {', '.join(unknown)}; give only {', '.join(KEYS)}"
    if not _NAME.fullmatch(str(job.get("name", ""))):
        yield "name must have 1 to 40 lower-case letters, digits and dashes"
    if job.get("job") not in JOBS:
        yield f"job is {job.get('job')!r}; give one of {', '.join(JOBS)}"
    yield from _argument_problems(job.get("arguments", []))
    for key, least in (("memory_mib", MEMORY_MIB_MIN), ("timeout_s", 1), ("keep", 1)):
        value = job.get(key, least)
        if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) < least:
            yield f"{key} is {value!r}; give a whole number of at least {least}"
    codes = job.get("accepted_exit_codes", [])
    if not isinstance(codes, list) or not all(str(code).isdecimal() and 1 <= int(code) <= 255 for code in codes):
        yield "accepted_exit_codes must be a list of numbers from 1 to 255"
    units = job.get("on_failure", [])
    if not isinstance(units, list) or not all(_UNIT.fullmatch(str(unit)) for unit in units):
        yield "on_failure must be a list of names of systemd units"
    for key in ("schedule", "master"):
        if not isinstance(job.get(key, ""), str) or "\n" in str(job.get(key, "")):
            yield f"{key} must be one line of text"


def _argument_problems(arguments: object) -> Iterator[str]:
    if not isinstance(arguments, list) or not all(isinstance(each, (str, int, float)) for each in arguments):
        yield "arguments must be a list of texts"
        return
    before = ""
    for text in map(str, arguments):
        option = text.partition("=")[0]
        yield from _path_problems(text, before)
        before = text
        if option in GIVEN:
            yield f"arguments has {option}, which the role gives itself"
        if _PASSWORD.search(text):
            # not quoted, because it has a password
            yield "arguments has a URL with a password; other users see arguments, so set broker_pipeline_password"
        if "\n" in text or "\0" in text:
            yield "arguments has a line break"


def _path_problems(text: str, before: str) -> Iterator[str]:
    """The problem of a URL in the place of a path.

    Args:
        text: An argument.
        before: The argument before it, which may be the option that it is the value of.
    """
    before = before if "=" not in before else ""
    option, _sign, value = text.partition("=") if text.startswith("-") else (before, "", text)
    url = _URL.match(value)
    if url is not None and option not in NO_PATHS and url[1].lower() != "file":
        yield f"arguments has {value}; files of the scheme {url[1]}: are not served, so give a path of the host"


def _definition(job: Mapping[str, object], settings: Mapping[str, object]) -> dict[str, object]:
    name, kind = str(job["name"]), str(job["job"])
    arguments = [str(each) for each in job.get("arguments", [])]  # type: ignore[attr-defined]
    memory_mib, timeout_s = int(str(job.get("memory_mib", MEMORY_MIB))), int(str(job.get("timeout_s", TIMEOUT_S)))
    systemd = settings["backend"] == "systemd"
    command = [f"{settings['root']}/current/bin/understudy", "pipeline", kind, "--json"]
    command.append(f"--master={job.get('master') or settings['master']}")
    command.append(f"--work-dir={settings['directory']}/work/{name}")
    if kind == "replay":
        command += _login(arguments, settings)
    if kind == "archive" and not any(each.partition("=")[0] == "--keep-hours" for each in arguments):
        command.append(f"--keep-hours={settings['archive_keep_hours']}")
    # half for Java's heap; Java itself and the Python workers need the rest
    environment = {"PYSPARK_SUBMIT_ARGS": f"--driver-memory {memory_mib // 2}m pyspark-shell"}
    if settings["java_home"]:
        environment["JAVA_HOME"] = str(settings["java_home"])
    unit = f"{settings['unit_prefix']}-{name}"
    return {
        "name": name,
        "job": kind,
        "command": command,
        "arguments": arguments,
        "environment": environment,
        "user": settings["system_user"],
        "group": settings["reader_group"],
        "directory": str(settings["directory"]),
        "reports": f"{settings['directory']}/reports/{name}",
        "work": f"{settings['directory']}/work/{name}",
        "keep": int(str(job.get("keep", settings["keep"]))),
        "timeout_s": timeout_s,
        "accepted_exit_codes": [int(code) for code in job.get("accepted_exit_codes", [])],  # type: ignore[attr-defined]
        "backend": settings["backend"],
        "runner": [str(settings["python"]), "-I", f"{settings['root']}/bin/pipeline_job.py"],
        "unit": f"{unit}.service" if systemd else "",
        "service": {
            "file": f"{unit}.service",
            "memory_mib": memory_mib,
            "timeout_s": timeout_s + STOP_S,
            "on_failure": [str(each) for each in job.get("on_failure", [])],  # type: ignore[attr-defined]
        },
        "timer": {"file": f"{unit}.timer", "schedule": str(job.get("schedule", "")).strip()},
    }


def _login(arguments: Sequence[str], settings: Mapping[str, object]) -> list[str]:
    given = {each.partition("=")[0] for each in arguments}
    found = []
    if settings["url"] and "--url" not in given:
        found.append(f"--url={settings['url']}")
    if settings["user"]:
        found += [f"--user={settings['user']}", f"--password-file={settings['root']}/etc/password"]
    return found
