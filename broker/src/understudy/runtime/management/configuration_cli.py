"""The management CLI of a running node: its requests read the configuration, or change the overlay beside broker.xml.

A change counts when the reader of the broker accepts broker.xml with all changes, and the overlay is on disk; then the
node applies the elements that it can apply while it runs. Requests are carried out one after the other, on a thread.
Not here: the operations (``management.dmr``), and the files (``runtime.files.configuration_change``).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from aiohttp import web

from understudy import __version__
from understudy.config.profiles.reader import places_of
from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.dmr.batch import StepFailed
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import Facts, validates_only
from understudy.management.dmr.requests import Request, failure, parse_get, parse_request, servers_of, success
from understudy.management.dmr.text import format_value
from understudy.management.dmr.values import Value, to_json
from understudy.management.json_text import parse_json
from understudy.runtime.files.configuration_change import carry_out
from understudy.runtime.files.configuration_file import ConfigurationFile
from understudy.runtime.management.requests import HEADERS, read_body, refuse, too_large
from understudy.runtime.node.node import BrokerNode
from understudy.runtime.process.reloading import ConfigurationFiles, Reload

log = logging.getLogger(__name__)

#: The type of answers in the notation of the CLI, which keeps the kinds of numbers.
NOTATION_TYPE: Final = "application/x-dmr-text"
#: Parameter of ``reload`` that reloads an active node of a pair which no node would replace.
FORCE: Final = "force"


class ConfigurationCli:
    """The requests of the management CLI to one node."""

    def __init__(
        self,
        node: BrokerNode,
        source: ConfigurationFile,
        files: ConfigurationFiles,
        reload: Reload,
    ) -> None:
        """Args:
        node: The node that answers.
        source: The files of its configuration.
        files: Applies changed files to the node.
        reload: Begins the reload of the node.
        """
        self._node = node
        self._source = source
        self._files = files
        self._reload = reload
        self._one_at_a_time = asyncio.Lock()

    async def post(self, request: web.Request) -> web.Response:
        """Answer POST: any operation, or a composite."""
        body = await read_body(request)
        if body is None:
            return too_large()
        try:
            wanted = parse_request(parse_json(body))
        except (ConfigError, ValueError) as error:
            return refuse(400, "bad-request", str(error))
        return await self._answer(wanted, request)

    async def get(self, request: web.Request) -> web.Response:
        """Answer GET: operations that read only."""
        try:
            path = request.rel_url.raw_path.removeprefix("/management")
            wanted = parse_get(path, list(request.rel_url.query.items()))
        except ConfigError as error:
            return refuse(400, "bad-request", str(error))
        return await self._answer(wanted, request)

    async def _answer(self, wanted: Request, request: web.Request) -> web.Response:
        user = f"token@{request.remote}"
        answer: Mapping[str, Value]
        try:
            answer = await self._carry_out(wanted, user)
        except StepFailed as error:
            answer = failure(str(error), error.number if wanted.composite else None)
        except BrokerError as error:
            answer = failure(str(error))
        status = 200 if answer["outcome"] == "success" else 500
        if NOTATION_TYPE in request.headers.get("Accept", ""):
            return web.Response(
                body=format_value(answer).encode("utf-8", "replace") + b"\n",
                status=status,
                headers={**HEADERS, "Content-Type": NOTATION_TYPE},
            )
        text = json.dumps(to_json(answer), indent=4 if wanted.pretty else None)
        return web.Response(
            body=text.encode() + b"\n", status=status, headers={**HEADERS, "Content-Type": "application/json"}
        )

    async def _carry_out(self, wanted: Request, user: str) -> Mapping[str, Value]:
        if wanted.is_reload:
            await self._begin_reload(wanted.operations[0], user)
            return {"outcome": "success", "result": None}
        async with self._one_at_a_time:
            facts = self._facts(servers_of(wanted))
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(None, partial(carry_out, self._source, wanted.operations, facts, user))
            if done.written:
                await self._apply()
        return success(wanted, done.outcomes, done.waits_for)

    # --- the node --------------------------------------------------------------------------------

    def _facts(self, counted: Mapping[str, str | None]) -> Facts:
        """Facts of the running node, with the number of the messages of some servers (``servers_of``)."""
        node = self._node
        process = node.parts.process
        assert process is not None, "a node whose configuration is changed has a process"
        messages = {name: process.servers.messages(server) for name, server in counted.items()}
        return Facts(
            version=__version__,
            directory=str(self._source.directory),
            reload_required=bool(node.parts.configuration.pending),
            messages=messages,
            in_sync=node.policy.name == "replication" and node.protection.find().protected,
            start_id=str(node.started_ms),
            factories=node.configuration.connection_factories,
            places=places_of(node.configuration),
        )

    async def _apply(self) -> None:
        """Apply the changed configuration to the running node, as far as that is possible."""
        applied: asyncio.Future[tuple[BrokerError, ...]] = asyncio.get_running_loop().create_future()
        self._files.ask(applied.set_result)
        for error in await applied:
            # the overlay is written and usable, so the next start applies it
            log.warning("a change of the management CLI is not applied yet", extra={"error": str(error)})

    async def _begin_reload(self, operation: Operation, user: str) -> None:
        """Begin the reload of the node. Raises BrokerError: the configuration is unusable, or no node would serve."""
        unknown = [name for name in operation.arguments if name != FORCE]
        if unknown:
            raise ManagementError(f"operation 'reload' has no parameter '{unknown[0]}'", hint=f"it has {FORCE}")
        loaded = await asyncio.get_running_loop().run_in_executor(None, self._source.load_whole)
        forced = str(operation.arguments.get(FORCE, "false")).lower() == "true"
        if validates_only([operation]):
            return
        self._reload(loaded, forced)
        log.warning("reload requested", extra={"user": user})
