"""Options of the data source ``understudy.queue`` (docs/use/pipeline.md), for reading and for writing.

Imports neither pyspark nor pyarrow. A password is only ever in a file: Spark shows options in plans and event logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from understudy.client import ClientUrl, parse_url
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.selector import parse_selector
from understudy.spark.journal.log_plan import number_option, path_option

#: Limits of one batch that hold unless options give others.
BATCH_MESSAGES: Final = 10_000
BATCH_BYTES: Final = 16 * 1024 * 1024
BATCH_WAIT_MS: Final = 1_000
#: Largest body that a batch takes. Spark sends a task in one piece of at most 128 MiB.
MESSAGE_BYTES: Final = 64 * 1024 * 1024
_PARTITION_BYTES: Final = 1024 * 1024
#: Sends of a task without a confirmation.
SEND_WINDOW: Final = 500
_PASSWORD_BYTES_MAX: Final = 4096
_COMMON: Final = ("passwordFile", "url", "user")
_OF_SOURCE: Final = (
    "columns", "filter", "maxBytes", "maxMessageBytes", "maxMessages", "maxWaitMs", "partitionBytes", "queue",
)  # fmt: skip
_OF_SINK: Final = ("address", "checkQueue", "deadRows", "idColumn", "writeId")


@dataclass(frozen=True, slots=True)
class Login:
    """Where to connect, and as whom."""

    url: str
    user: str | None = None
    password_file: str | None = None

    def client_url(self) -> ClientUrl:
        """The URL, with the option that non-durable messages are confirmed, too."""
        parsed = parse_url(self.url)
        return replace(parsed, options=replace(parsed.options, block_on_non_durable_send=True))

    def password(self) -> str | None:
        """The first line of the password file.

        Raises:
            ConfigError: the file cannot be read, or is empty.
        """
        if self.password_file is None:
            return None
        try:
            with open(self.password_file, encoding="utf-8") as file:
                found = file.readline(_PASSWORD_BYTES_MAX).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
            raise ConfigError(f"option passwordFile: cannot be read: {reason}", file=self.password_file) from error
        if not found:
            raise ConfigError("option passwordFile: its first line is empty", file=self.password_file)
        return found


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options of a reader, checked."""

    login: Login
    queue: str
    """Name of the queue, or ``address::queue``."""
    filter: str | None
    columns: str | None
    """Names of columns, separated by commas; None: all."""
    messages_max: int
    bytes_max: int
    wait_ms: int
    message_bytes_max: int
    partition_bytes: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of a writer, checked."""

    login: Login
    address: str | None
    """Address that the rows are sent to; None: column ``address`` has it."""
    id_column: str | None
    write_id: str | None
    check_queue: bool
    dead_rows: str | None = None
    """Directory for rows that cannot be sent."""


def parse_source(given: Mapping[str, str]) -> SourceOptions:
    """Options as Spark hands them over: names in any case, values as text.

    Raises:
        ConfigError: an option is unknown, missing, or has a value that it cannot have.
        InvalidSelector: the filter cannot be parsed.
    """
    values = _known(given, (*_COMMON, *_OF_SOURCE), "readers")
    queue = values.get("queue", values.get("path", ""))
    if not queue:
        raise ConfigError("option queue is missing", hint="the name of a queue, or address::queue")
    filter_text = values.get("filter", "").strip() or None
    if filter_text is not None:
        parse_selector(filter_text)
    options = SourceOptions(
        login=_login(values),
        queue=queue,
        filter=filter_text,
        columns=values.get("columns"),
        messages_max=_number(values, "maxMessages", BATCH_MESSAGES),
        bytes_max=_number(values, "maxBytes", BATCH_BYTES),
        wait_ms=_number(values, "maxWaitMs", BATCH_WAIT_MS),
        message_bytes_max=_number(values, "maxMessageBytes", MESSAGE_BYTES),
        partition_bytes=_number(values, "partitionBytes", _PARTITION_BYTES),
    )
    if options.message_bytes_max > MESSAGE_BYTES:
        raise ConfigError(f"option maxMessageBytes: at most {MESSAGE_BYTES}, as Spark sends a task in one piece")
    return options


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """Options as Spark hands them over.

    Raises:
        ConfigError: an option is unknown, missing, or has a value that it cannot have.
    """
    values = _known(given, (*_COMMON, *_OF_SINK), "writers")
    check = values.get("checkqueue", "true").lower()
    if check not in ("true", "false"):
        raise ConfigError(f"option checkQueue: {check!r} is none of true, false")
    for name in ("address", "deadRows", "idColumn", "writeId"):
        if values.get(name.lower()) == "":
            raise ConfigError(f"option {name} is empty")
    return SinkOptions(
        _login(values),
        values.get("address", values.get("path")),
        values.get("idcolumn"),
        values.get("writeid"),
        check == "true",
        path_option(dict(values), "deadRows"),
    )


def _known(given: Mapping[str, str], names: tuple[str, ...], of: str) -> dict[str, str]:
    values = {name.lower(): value for name, value in given.items()}
    if "password" in values:
        raise ConfigError("option password: Spark shows options in its plans", hint="give passwordFile")
    # Spark adds the path of load and save, and the checkpoint of a stream, to the options
    unknown = set(values) - {name.lower() for name in names} - {"path", "checkpointlocation"}
    if unknown:
        raise ConfigError(f"unknown option {sorted(unknown)[0]!r}", hint=f"options of {of}: {', '.join(sorted(names))}")
    return values


def _login(values: Mapping[str, str]) -> Login:
    url = values.get("url", "")
    if not url:
        raise ConfigError("option url is missing", hint="as docs/use/client-url.md describes it")
    parsed = parse_url(url)
    stores = [each.tls for each in parsed.connectors if each.tls is not None]
    secret = parsed.options.password or any(each.key_store_password or each.trust_store_password for each in stores)
    if secret:
        raise ConfigError(
            "option url has a password, and Spark shows options in its plans",
            hint="give user and passwordFile; for TLS, stores without a password (PEM) in files of mode 0600",
        )
    if "passwordfile" in values and "user" not in values and parsed.options.user is None:
        raise ConfigError("option passwordFile needs option user")
    return Login(url, values.get("user"), path_option(dict(values), "passwordFile"))


def _number(values: Mapping[str, str], name: str, default: int) -> int:
    return number_option({name: values.get(name.lower(), str(default))}, name, default)
