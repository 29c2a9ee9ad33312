"""The Spark session of every job here, with settings that are safe on a broker's host.

Each setting answers an observed default of Spark 4: without them Spark opens ports on every interface, takes
whatever ``python3`` is on the PATH for its workers, and never retries a task in local mode.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from understudy.errors import ConfigError
from understudy.texts import reason_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Oldest Java that Spark 4 runs on.
JAVA_MAJOR_MIN: Final = 17
#: Attempts per task in local mode; plain ``local[N]`` makes one.
TASK_ATTEMPTS: Final = 4
#: Java heap of the driver, which in local mode is all of Spark.
DRIVER_MEMORY: Final = "2g"
_JAVA_TIMEOUT_S: Final = 30
#: Environment variable by which ``spark-submit`` tells a driver in Python where its JVM is.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_LOCAL: Final = re.compile(r"local(?:\[(\*|[1-9][0-9]{0,3})(?:,[0-9]{1,3})?\])?", re.ASCII)


def require_spark() -> None:
    """Make sure everything a session needs is there, before Spark fails with an unclear error.

    Raises:
        ConfigError: something is missing; says what and how to get it.
    """
    for module, text in (
        ("pyspark", "pyspark is not installed"),
        ("pyarrow", "pyarrow is not installed; Spark's workers would die without saying why"),
    ):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(text, hint="pip install 'understudy[spark]'")
    java = java_command(os.environ.get("JAVA_HOME"))
    if java is None:
        raise ConfigError("Java is not installed", hint=f"Spark needs Java {JAVA_MAJOR_MIN} or newer")
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} cannot be run: {reason_of(error)}") from error
    major = java_major(answer.stderr + answer.stdout)
    if major is None or major < JAVA_MAJOR_MIN:
        found = "of an unknown version" if major is None else f"version {major}"
        raise ConfigError(f"{java} is {found}", hint=f"Spark needs Java {JAVA_MAJOR_MIN} or newer; see JAVA_HOME")


def java_command(java_home: str | None) -> str | None:
    """The ``java`` that Spark will run: of JAVA_HOME if that is set, else of the PATH."""
    if java_home:
        command = Path(java_home) / "bin" / "java"
        return str(command) if command.is_file() else None
    return shutil.which("java")


def java_major(text: str) -> int | None:
    """17 of ``openjdk version "17.0.15" ...``, 8 of ``java version "1.8.0_392"``."""
    match = re.search(r'version "(?:1\.)?([0-9]{1,4})', text)
    return int(match[1]) if match else None


def local_master(master: str, cores: int) -> str | None:
    """``local[N,attempts]`` for a local master, None for any other."""
    match = _LOCAL.fullmatch(master)
    if match is None:
        return None
    threads = {None: "1", "*": str(cores)}.get(match[1], match[1])
    return f"local[{threads},{TASK_ATTEMPTS}]"


def settings(master: str, work_directory: str, cores: int) -> dict[str, str]:
    """Every setting of a session, the master included."""
    log = files("understudy.spark") / "log4j2.properties"
    found = {
        "spark.master": master,
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={log}" -XX:+UseSerialGC',
        "spark.local.dir": work_directory,
        "spark.master.rest.enabled": "false",
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(Path(work_directory) / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    local = local_master(master, cores)
    if local is not None:
        threads = local.removeprefix("local[").partition(",")[0]
        found |= {
            "spark.master": local,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": threads,
        }
    return found


def submitted_settings() -> dict[str, str]:
    """The settings of ``spark-submit`` if it has started this process, else none. They win over ours."""
    if _SUBMITTED not in os.environ:
        return {}
    from pyspark import SparkConf

    return dict(SparkConf().getAll())


def open_session(
    master: str = "local[*]", *, work_directory: str, name: str = "understudy", more: dict[str, str] | None = None
) -> SparkSession:
    """A session with ``settings``; the caller stops it and removes ``work_directory``.

    Args:
        master: ``local``, ``local[N]``, ``local[*]`` or the URL of a cluster; under ``spark-submit`` that one's counts.
        work_directory: Where shuffles and spills go.
        more: Settings that win over ours.

    Raises:
        ConfigError: pyspark, pyarrow or Java is missing.
    """
    require_spark()
    from pyspark.sql import SparkSession

    given = submitted_settings()
    if not given:
        os.environ["PYSPARK_PYTHON"] = sys.executable  # before the JVM starts; the setting alone is read too late
    builder = SparkSession.Builder().appName(name)
    own = settings(given.get("spark.master", master), work_directory, os.cpu_count() or 1)
    for key, value in (own | given | {"spark.master": own["spark.master"]} | (more or {})).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    from understudy.spark.journal.source import register
    from understudy.spark.ledger.source import register_ledger
    from understudy.spark.queue.source import register_queue

    register(spark)
    register_ledger(spark)
    register_queue(spark)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
