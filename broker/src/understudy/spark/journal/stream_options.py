"""Options of the streaming source ``understudy.journal`` (docs/use/pipeline.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import READER_HELD_BYTES
from understudy.spark.journal.log_plan import Layout, Mode, Options, number_option, parse_options, path_option
from understudy.spark.journal.stream_offsets import StreamOffset, parse_offset
from understudy.units import parse_bytes

#: Bytes of log in one micro-batch, unless option ``maxBytesPerBatch`` says otherwise.
BATCH_BYTES: Final = 256 * 1024 * 1024
#: Bytes of log in one partition of a micro-batch.
_PARTITION_BYTES: Final = 16 * 1024 * 1024
_NAMES: Final = ("maxBytesPerBatch", "reader", "readerMaxBytes", "servers", "startingOffset", "tokenFile")


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Options of a stream, checked."""

    table: Options
    """The options that a batch has as well; the directories are copies of one log."""
    batch_bytes: int
    starting: str | StreamOffset
    """``earliest``, ``latest`` or an offset."""
    servers: tuple[str, ...] = ()
    """Management URLs of the nodes that may be active."""
    token_file: str | None = None
    reader: str | None = None
    """Named reader at the broker."""
    reader_max_bytes: int = READER_HELD_BYTES


def without_stream_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options that a batch has as well."""
    own = {name.lower() for name in _NAMES}
    return {name: value for name, value in given.items() if name.lower() not in own}


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Options as Spark hands them over.

    Raises:
        ConfigError: an option is unknown, or has a value that it cannot have, alone or beside the others.
    """
    values = {name.lower(): value for name, value in given.items()}
    if "endingoffset" in values:
        raise ConfigError("option endingOffset: a stream has no end", hint="spark.read reads a range of offsets")
    table = parse_options(
        {"partitionBytes": str(_PARTITION_BYTES), "inUse": "read"} | without_stream_options(given), STREAM_HINT
    )
    if table.table == "references":
        raise ConfigError("option table: references are the contents of a snapshot, which a stream does not read")
    if table.mode is not Mode.FAIL:
        raise ConfigError("option mode: a stream ends at damage (mode fail)", hint="quarantine it at the broker")
    if table.mixed_nodes:
        raise ConfigError("option nodes: a stream follows the log of one node", hint="one stream for each node id")
    servers = tuple(each.strip().rstrip("/") for each in values.get("servers", "").split(",") if each.strip())
    reader = values.get("reader")
    if reader is not None and not servers:
        raise ConfigError("option reader needs option servers, the management URLs of the nodes")
    if len(table.directories) > 1 and not servers:
        raise ConfigError(
            "several copies of a log need option servers, the management URLs of the nodes",
            hint="only the active node knows up to where its records are at every copy",
        )
    if table.layout is Layout.RETENTION and reader is not None:
        raise ConfigError("option reader belongs to a journal directory, not to layout=retention")
    return StreamOptions(
        table,
        number_option({"maxbytesperbatch": values.get("maxbytesperbatch", str(BATCH_BYTES))}, "maxbytesperbatch", 0),
        _starting(values.get("startingoffset", "earliest")),
        servers,
        path_option(dict(values), "tokenFile"),
        reader,
        _bytes(values.get("readermaxbytes", str(READER_HELD_BYTES))),
    )


#: Of the error for an unknown option.
STREAM_HINT: Final = f"; of streams also {', '.join(_NAMES)}"


def _bytes(text: str) -> int:
    try:
        found = parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"option readerMaxBytes: {error}") from error
    if found <= 0:
        raise ConfigError(f"option readerMaxBytes: {text!r} is no positive number")
    return found


def _starting(text: str) -> str | StreamOffset:
    if text in ("earliest", "latest"):
        return text
    try:
        given = json.loads(text)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigError(
            f"option startingOffset: {text!r} is none of earliest, latest, JSON with node_id, epoch, sequence"
        )
    return parse_offset(given, "option startingOffset")
