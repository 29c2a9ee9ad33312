"""Requests of a stream to the active node of its log: the confirmed end, and the named reader (ADR 0079)."""

from __future__ import annotations

import json
from typing import Any

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConfigError, ConnectionFailed, ManagementError
from understudy.runtime.base.management_client import ManagementAddress
from understudy.spark.journal.stream_offsets import StreamOffset
from understudy.texts import reason_of


@dataclass(frozen=True, slots=True)
class BrokerPositions:
    """Positions that the active node says."""

    confirmed: StreamOffset
    earliest: StreamOffset
    address: ManagementAddress
    """Address of the node that answered."""


class ActiveNode:
    """Finds the active node among some management URLs, at each request anew: it may have changed."""

    def __init__(self, servers: tuple[str, ...], token_file: str | None) -> None:
        """
        Raises:
            ConfigError: the token cannot be read.
        """
        token = ""
        if token_file is not None:
            try:
                with open(token_file, encoding="utf-8") as file:
                    token = file.read(64 * 1024).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot be read: {reason_of(error)}", file=token_file) from error
        self._servers = tuple(ManagementAddress(url, token) for url in servers)

    def positions(self) -> BrokerPositions:
        """Positions of the active node with the newest epoch.

        Raises:
            ConfigError: a node refuses the token, or is none of this version.
            ConnectionFailed: no node is active; says what each of them answered.
        """
        found: list[BrokerPositions] = []
        reasons: list[str] = []
        for server in self._servers:
            try:
                answer = server.ask("/api/v1/readers")
            except ConnectionFailed as error:
                reasons.append(str(error))
                continue
            if answer["confirmed"] is None:
                reasons.append(f"{server.url} is not active")
            else:
                confirmed, earliest = (_offset(answer, name) for name in ("confirmed", "earliest"))
                found.append(BrokerPositions(confirmed, earliest, server))
        if not found:
            raise ConnectionFailed(f"no active node: {'; '.join(reasons)}")
        return max(found, key=lambda each: (each.confirmed.epoch, each.confirmed.sequence))

    def register(self, reader: str, position: str, max_bytes: int) -> StreamOffset:
        """Register a reader, or find the position of one that exists.

        Raises:
            ConnectionFailed: no node is active.
            ManagementError: it was refused.
        """
        return self._invoke("registerReader", reader, position, max_bytes)

    def commit(self, reader: str, offset: StreamOffset) -> StreamOffset:
        """Commit the position of a reader; the position that it has then. Raises as ``register``."""
        return self._invoke("commitReader", reader, offset.as_json())

    def _invoke(self, operation: str, *parameters: object) -> StreamOffset:
        address = self.positions().address
        body = {"resource": "broker", "operation": operation, "parameters": list(parameters)}
        try:
            answer: dict[str, Any] = json.loads(address.ask("/api/v1/invoke", body=body)["result"])
        except (ConnectionFailed, ConfigError):
            raise
        except BrokerError as error:
            raise ManagementError(str(error)) from error
        return StreamOffset(answer["node_id"], answer["epoch"], answer["sequence"])


def _offset(answer: dict[str, Any], name: str) -> StreamOffset:
    return StreamOffset(answer["node_id"], answer[name]["epoch"], answer[name]["sequence"])
