"""Parts that the commands of ``understudy pipeline`` share: options, the session of a job, its errors, its progress."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from understudy.cli.terminal import echo
from understudy.errors import BrokerError, ConfigError, LedgerDamaged, StoreError
from understudy.spark.session import open_session, require_spark
from understudy.units import parse_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Lines of Spark's own output that are shown when it fails.
LOG_LINES_SHOWN: Final = 40
#: Options of every job.
MASTER = click.option(
    "--master", default="local[*]", show_default=True, help="Spark master; the inputs must be visible to it."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
WORK_DIRECTORY = click.option(
    "--work-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where Spark spills; default: the system's temporary directory.",
)


def byte_count(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """A number of bytes as 10G, for options."""
    if value is None:
        return None
    try:
        return parse_bytes(value)
    except (ConfigError, ValueError) as error:
        raise click.BadParameter(str(error)) from error


@contextmanager
def job_session(name: str, master: str, work_dir: Path | None) -> Iterator[SparkSession]:
    """Session of Spark for one job. Errors of Spark are printed as one line."""
    require_spark()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with tempfile.TemporaryDirectory(prefix="understudy-spark-", dir=work_dir) as directory:
        log = Path(directory) / "spark.log"
        try:
            with _errors_into(log):
                spark = open_session(master, work_directory=directory, name=f"understudy {name}")
        except BaseException:
            _show_end_of(log)
            raise
        try:
            yield spark
        except (LedgerDamaged, StoreError) as error:
            raise ConfigError(str(error)) from error
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(error.filename)) from error
        except (PySparkException, Py4JError) as error:
            own = _own_error(str(error))
            if own is not None:
                raise ConfigError(own) from error
            _show_end_of(log)
            raise BrokerError(f"Spark failed: {str(error).strip().splitlines()[0]}") from error
        finally:
            spark.stop()


@contextmanager
def _errors_into(log: Path) -> Iterator[None]:
    """Processes that are started meanwhile write their standard error into a file.

    Spark's Java process hands on a traceback of ``pyspark.daemon`` for each worker whose answer it does not read to the
    end, which happens in jobs that succeed. Under spark-submit that process exists already.
    """
    before = os.dup(2)
    try:
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _show_end_of(log: Path) -> None:
    """Show the last lines that Spark wrote, because a job has failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines[-LOG_LINES_SHOWN:]:
        echo(line, err=True)


def _own_error(text: str) -> str | None:
    """The error of this package in the traceback of a task; None if there is none."""
    own = [line for line in map(str.strip, text.splitlines()) if line.startswith("understudy.errors.")]
    return own[-1].partition(": ")[2] if own else None


def progress(*, quiet: bool) -> Callable[[str], None]:
    """Steps of a job on standard error, for people only."""
    if quiet or not sys.stderr.isatty():
        return lambda doing: None
    return lambda doing: echo(f"{doing} ...", err=True)


def make_directory(path: Path) -> None:
    """Make a directory for results, with those above it. Raises ConfigError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot be made: {error.strerror}", file=str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """A file that is there completely or not at all."""
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror}", file=str(path)) from error
