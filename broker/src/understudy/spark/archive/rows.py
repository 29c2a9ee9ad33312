"""Messages of journals that belong in an archive, as ``DataFrame -> DataFrame`` functions. Bodies are never shuffled.

A message is confirmed, and archived, if it was sent outside of a transaction, or the commit of its transaction was
read, or an acknowledgement of it was read, or a snapshot has it in a queue. A MESSAGE_MOVE alone proves nothing: the
consolidator also copies messages of open transactions. Proofs count for the directory in which they were read, because
copies that diverged give the same ids to different messages and transactions.

Not here: reading the bodies and writing files (``archive_files``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from understudy.spark.journal.source import read_journal
from understudy.spark.journal.stream_offsets import StreamOffset
from understudy.store.log.records import RecordType

#: Identifies a message in an archive. Two copies of one message have the same key.
KEY: Final = ("node_id", "message_id", "content_hash")
#: Columns of the directory of a file.
PARTITION: Final = ("date", "address_key")
#: Where the record of a message lies.
PLACE: Final = ("moved", "directory", "segment", "epoch", "sequence", "file", "offset", "length")
#: Columns of table ``references`` that prove messages.
HELD: Final = ("directory", "message_id", "transaction_id", "acknowledged")
_READ: Final = (*PLACE, "node_id", "message_id", "transaction_id", "address", "queue", "timestamp", "size", "encoded")

#: Longest readable part of an address key, and the digits of the hash after it. Characters.
KEY_TEXT_MAX: Final = 40
KEY_HASH_DIGITS: Final = 16
_NOT_PLAIN: Final = "[^A-Za-z0-9._]"
_SPECIAL: Final = re.compile(r"([\\.^$|?*+()\[\]{}\-#&~])")


def address_expression(matches: Sequence[str]) -> str:
    """A regular expression, for Java and Python, that an address matches as a whole if one of the matches fits.

    Args:
        matches: Matches with the wildcards of the manual: ``*`` for one word, ``#`` for any number of words.
    """
    return "|".join(f"(?:{_expression(match.split('.'))})" for match in matches)


def _expression(words: list[str]) -> str:
    # several wildcards # in a row match the same addresses as one
    words = [word for place, word in enumerate(words) if word != "#" or place == 0 or words[place - 1] != "#"]
    if words == ["#"]:
        return r"[\s\S]*"
    found = ""
    for place, word in enumerate(words):
        last = place == len(words) - 1
        if word == "#":
            found += r"(?:\.[\s\S]*)?" if last else r"(?:[\s\S]*\.)?"
            continue
        found += "[^.]*" if word == "*" else _SPECIAL.sub(r"\\\1", word)
        if not last and not (words[place + 1] == "#" and place + 1 == len(words) - 1):
            found += r"\."
    return found


def address_key(address: Column) -> Column:
    """The name of the directory of an address: its beginning in plain characters, and digits of its SHA-256.

    The name of an address alone would not do: a number would be read back as a number, and file names have limits.
    """
    text = F.coalesce(address, F.lit(""))
    plain = F.substring(F.regexp_replace(text, _NOT_PLAIN, "_"), 1, KEY_TEXT_MAX)
    digits = F.substring(F.sha2(text.cast("binary"), 256), 1, KEY_HASH_DIGITS)
    return F.concat(plain, F.lit("-"), digits)


def read_candidates(
    spark: SparkSession,
    directories: Sequence[str],
    addresses: Sequence[str] = (),
    *,
    held: DataFrame | None = None,
    one_log: bool = False,
    options: Mapping[str, str],
) -> DataFrame:
    """Read one row for each message of the journals, with the columns of ``candidates``.

    Args:
        spark: A session of ``open_session``.
        addresses: Only messages to addresses that match one of these; all if there are none.
        held: Messages of a snapshot, with the columns of ``HELD``; None: those of the snapshots of the journals.
        one_log: All directories have segments of one log; else each one is a log of its own.

    Raises:
        StoreError: as ``read_journal``.
    """

    def table(name: str, columns: Iterable[str], where: Sequence[tuple[str, str, Any]] = ()) -> DataFrame:
        return read_journal(spark, directories, name, list(columns), where, **options)

    commits = table("records", ("directory", "transaction_id"), [("kind", "=", RecordType.TX_COMMIT.name)])
    messages = table("messages", _READ)
    if addresses:
        expression = rf"\A(?:{address_expression(addresses)})\z"
        messages = messages.where(F.coalesce(F.col("address"), F.lit("")).rlike(expression))
    acknowledgements = table("acknowledgements", ("directory", "message_id"))
    references = table("references", HELD) if held is None else held

    def of_log(rows: DataFrame) -> DataFrame:
        return rows.withColumn("log", F.lit("") if one_log else F.col("directory"))

    return candidates(of_log(messages), of_log(commits), of_log(acknowledgements), of_log(references))


def first_undecided(
    spark: SparkSession,
    directories: Sequence[str],
    held: DataFrame | None,
    end: StreamOffset,
    options: Mapping[str, str],
) -> tuple[int | None, bool]:
    """The lowest sequence of a message whose transaction may still be committed after the end of a range of one log,
    and whether there is a copy of the consolidator among these messages.

    A transaction is open without a commit and a rollback; one that is not prepared ends with its epoch.

    Args:
        spark: A session of ``open_session``.
        directories: Copies of the log.
        held: Messages of a snapshot: a copy of a message does not say its transaction. None: all copies are of
            messages that were judged before.
        options: Options of the source, the offsets of the range among them.
    """

    def table(name: str, *columns: str, where: Sequence[tuple[str, str, Any]] = ()) -> DataFrame:
        return read_journal(spark, directories, name, list(columns), where, **options)

    outcomes = (RecordType.TX_COMMIT.name, RecordType.TX_ROLLBACK.name)
    decided = table("records", "transaction_id", where=[("kind", "in", outcomes)])
    prepared = table("records", "transaction_id", where=[("kind", "=", RecordType.TX_PREPARE.name)]).distinct()
    columns = ("message_id", "moved", "transaction_id", "epoch", "sequence")
    place = ("transaction_id", "epoch", "sequence", "moved")
    originals = table("messages", *columns, where=[("moved", "=", False)])
    staged = originals.where("transaction_id IS NOT NULL").select(*place)
    if held is not None:
        of_copies = held.where("transaction_id IS NOT NULL AND NOT acknowledged").select("message_id", "transaction_id")
        copies = table("messages", *columns, where=[("moved", "=", True)]).drop("transaction_id")
        staged = staged.unionByName(copies.join(of_copies.distinct(), "message_id").select(*place))
    may_follow = (F.col("epoch") == end.epoch) | F.coalesce("prepared", F.lit(False))
    found = (
        staged.join(decided, "transaction_id", "left_anti")
        .join(prepared.withColumn("prepared", F.lit(True)), "transaction_id", "left")
        .where(may_follow)
        .agg(F.min("sequence").alias("first"), F.coalesce(F.max("moved"), F.lit(False)).alias("copied"))
        .first()
    )
    assert found is not None, "an aggregate without groups has one row"
    return (None if found["first"] is None else int(found["first"])), bool(found["copied"])


def candidates(
    messages: DataFrame, commits: DataFrame, acknowledgements: DataFrame, references: DataFrame
) -> DataFrame:
    """Each message once: KEY, PARTITION, PLACE, ``address``, ``queues``, ``size``, and whether it is ``confirmed``.

    Args:
        messages: Table ``messages`` with the columns that ``read_candidates`` reads, and ``log``: proofs count for
            the messages of the same log.
        commits: ``log`` and ``transaction_id`` of the commits.
        acknowledgements: ``log`` and ``message_id``.
        references: References of the snapshots.
    """
    hashed = messages.withColumn("content_hash", F.xxhash64("encoded")).drop("encoded")
    committed = commits.select("log", "transaction_id").distinct().withColumn("committed", F.lit(True))
    # an acknowledgement of an open transaction proves that the message was in a queue, whatever the outcome
    in_queue = F.col("acknowledged") | F.col("transaction_id").isNull() | F.coalesce("committed", F.lit(False))
    held = _left(references, committed).where(in_queue).select("log", "message_id")
    acknowledged = acknowledgements.select("log", "message_id")
    proofs = acknowledged.unionByName(held).distinct().withColumn("proved", F.lit(True))
    alone = ~F.col("moved") & F.col("transaction_id").isNull()
    known = _left(hashed, committed).join(proofs, ["log", "message_id"], "left")
    is_confirmed = alone | F.coalesce("committed", "proved", F.lit(False))
    return (
        known.withColumn("confirmed", is_confirmed)
        .withColumn("unproved", ~F.col("confirmed"))
        .groupBy(*KEY)
        .agg(
            F.max("confirmed").alias("confirmed"),
            # a confirmed record before others, the first one before its copies; directories in the order of their names
            F.min(F.struct("unproved", *PLACE, "address", "timestamp", "size")).alias("first"),
            F.array_sort(F.collect_set("queue")).alias("queues"),
        )
        .select(*KEY, "confirmed", "queues", "first.*")
        .withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
        .withColumn("address_key", address_key(F.col("address")))
        .drop("timestamp", "unproved")
    )


def _left(rows: DataFrame, committed: DataFrame) -> DataFrame:
    """The rows with ``committed``, null outside of transactions and if there is no commit."""
    # rows without a transaction would all meet in one task; ids are positive, so a negative one matches none
    spread = F.coalesce(F.col("transaction_id"), -F.col("message_id"))
    return (
        rows.withColumn("joined", spread)
        .join(committed.withColumnRenamed("transaction_id", "joined"), ["log", "joined"], "left")
        .drop("joined")
    )


def not_archived(rows: DataFrame, present: DataFrame | None) -> DataFrame:
    """The rows with ``archived``: whether an archive has them.

    Args:
        rows: Result of ``candidates``.
        present: KEY of the messages in the archive; None if it is empty.
    """
    if present is None:
        return rows.withColumn("archived", F.lit(False))
    marked = present.select(*KEY).withColumn("archived", F.lit(True))
    return rows.join(marked, list(KEY), "left").withColumn("archived", F.coalesce("archived", F.lit(False)))


def in_files(rows: DataFrame, file_bytes: int) -> DataFrame:
    """The rows with ``file_number``: messages of one partition, in order, are cut into files of about that size."""
    before = Window.partitionBy(*PARTITION).orderBy(*KEY).rowsBetween(Window.unboundedPreceding, -1)
    used = F.coalesce(F.sum("size").over(before), F.lit(0))
    return rows.withColumn("file_number", F.floor(used / file_bytes).cast("int"))


def key_sum() -> Column:
    """An aggregate: the sum of the hashes of the keys, as a decimal number."""
    return F.coalesce(F.sum(F.xxhash64(*KEY).cast("decimal(20,0)")), F.lit(0).cast("decimal(20,0)"))
