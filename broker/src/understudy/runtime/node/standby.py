"""A node while another one is active: it follows the log and announces itself. Implements ``Standby``."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from understudy.errors import StoreError, StoreVersionUnsupported
from understudy.ha.life.activation import Step
from understudy.runtime.base.parts import NodeParts, Owner
from understudy.runtime.node.standby_faults import StandbyFaults
from understudy.store.log.reading.follow_pace import FOLLOW_STEP_BYTES
from understudy.store.log.reading.follower import Follower

log = logging.getLogger(__name__)

#: After an unreadable store, before following it anew from its beginning.
FOLLOW_RETRY_MS: Final = 1_000
#: Between two checks whether the node may take over.
CHECK_MS: Final = 2_000


class NodeStandby:
    """Keeps up with the active node, so that taking over costs the unread end of the log. Implements ``Standby``."""

    def __init__(self, parts: NodeParts, owner: Owner) -> None:
        self._parts = parts
        self._owner = owner
        self._timer: asyncio.TimerHandle | None = None
        self.follower: Follower | None = None
        self.following_error: str | None = None
        """The reason why the log cannot be followed at the moment."""
        self._faults = StandbyFaults(parts, owner)
        self._checked_s = 0.0

    def why_not_take_over(self) -> str | None:
        """Reason why this node would not take over; None: it may. Called about every ``CHECK_MS``, which logs a new
        reason."""
        return self._faults.find()

    @property
    def announced_to(self) -> str | None:
        """Host and port of the active node that knows this one as its backup."""
        connector = None if self._parts.membership is None else self._parts.membership.announced_to
        return None if connector is None else f"{connector.host}:{connector.port}"

    # --- ha.policy.Standby ---------------------------------------------------------------------

    def follow(self) -> None:
        """Read the log now, and again after the time that the pace gives."""
        now_s = self._parts.loop.time()
        if now_s - self._checked_s >= CHECK_MS / 1000:
            self._checked_s = now_s
            self.why_not_take_over()
        pace = self._parts.watch.pace
        delay_ms = pace.delay_ms
        if pace.needs_poll(self.follower):
            delay_ms = self._poll_log()
        self._timer = self._parts.loop.call_later(delay_ms / 1000, self.follow)

    def stop_following(self) -> None:
        """Stop following the log and close the follower."""
        self._pause()
        if self.follower is not None:
            self.follower.close()
            self.follower = None

    def watch_cluster(self) -> None:
        for each in self._parts.networks:
            each.membership.watch(self._parts.lock.node_id)

    def announce(self) -> None:
        """Announce this node, unless it is announced already."""
        for each in self._parts.networks:
            each.membership.announce(self._parts.lock.node_id)

    def withdraw(self) -> None:
        """Stop announcing the node as a backup."""
        for each in self._parts.networks:
            each.membership.leave()

    def peer_is_announced(self) -> bool:
        """Whether a backup of this node is announced to it."""
        if self._parts.membership is None:
            # without a cluster-connection a backup cannot announce itself: the state byte has to show that it exists
            return True
        member = self._parts.topology.member(self._parts.lock.node_id)
        return member is not None and member.backup is not None

    # --- activation ----------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Read the rest of the log; ``follower`` then waits for ``take_follower``."""
        return [
            Step("check the identity of the store", self._check_identity),
            Step("read the log to its end", self._read_to_end, self.stop_following),
        ]

    def _check_identity(self) -> None:
        self._pause()
        self._parts.watch.check_identity()

    async def _read_to_end(self) -> None:
        await self.read_to_end()

    async def read_to_end(self) -> Follower:
        """Read the rest of the log before the step that does so. Returns the follower, which stays open."""
        self._pause()
        if self.follower is None:
            self.follower = self._parts.watch.follower()
        if not self.follower.quiet():
            while self.follower.poll(FOLLOW_STEP_BYTES) and not self.follower.caught_up:
                await asyncio.sleep(0)
        return self.follower

    def take_follower(self) -> Follower:
        """The follower of the log; the caller closes it."""
        follower, self.follower = self.follower, None
        assert follower is not None
        return follower

    # --- following -----------------------------------------------------------------------------

    def _pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _poll_log(self) -> int:
        """Apply new records; returns the time until the next poll, in milliseconds."""
        watch = self._parts.watch
        try:
            if self.follower is None:
                self.follower = watch.follower()
            began_s = self._parts.loop.time()
            applied = self.follower.poll(watch.pace.step_bytes, further=watch.pace.goes_on())
            watch.pace.polled(applied, self._parts.loop.time() - began_s)
            self.following_error = None
            # a record that could not be read now, such as a damaged one, is tried again later
            return 0 if applied and not self.follower.caught_up else watch.pace.delay_ms
        except StoreVersionUnsupported as error:
            # this node cannot take over: it ends, so that this is seen and another backup is the next in line
            self._owner.fail(error)
            return FOLLOW_RETRY_MS
        except StoreError as error:
            # the store may be in the middle of a change by its owner: say it, start over
            if self.following_error != str(error):
                log.warning("cannot follow the store", extra={"error": str(error)})
            self.following_error = str(error)
            if self.follower is not None:
                self.follower.close()
                self.follower = None
            return FOLLOW_RETRY_MS
