"""Handlers of a cluster whose notifications are delayed and lost: a group has one queue, and messages keep their order.

Notifications of a node reach each other node in order. A link that is lost loses them; when it is there again, the node
at its other end reports its queues anew (artemis-ha s. 7.5, 7.8).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.grouping import GroupingNode
from support.routing import World
from understudy.cluster.balancing.group_notices import GroupNotice
from understudy.properties import PropertyValue

IDS = [f"{number}0000000-2222-3333-4444-555555555555" for number in range(3)]
QUEUES = ["q" + each for each in IDS]
GROUPS = ["a", "b", "c"]
TIMEOUT_MS = 100


class Member(GroupingNode):
    """One node; the first one decides."""

    def __init__(self, number: int, cluster: GroupCluster, world: World | None = None) -> None:
        self.number = number
        self.cluster = cluster
        kind = "REMOTE" if number else "LOCAL"
        super().__init__(kind, node_id=IDS[number], world=world, timeout_ms=TIMEOUT_MS)

    def group_noticed(self, kind: str, properties: dict[str, PropertyValue]) -> None:
        super().group_noticed(kind, properties)
        self.cluster.publish(self.number, self.published[-1])


class GroupCluster(RuleBasedStateMachine):
    """Three nodes, each with a producer for each group."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[tuple[int, int], deque[GroupNotice] | None] = {}
        """Notifications under way, from and to; None: the link is lost."""
        self.routed: dict[str, set[str]] = {}
        self.order: dict[tuple[int, str], list[int]] = {}
        self.sent: dict[tuple[int, str], int] = {}
        self.waiting: dict[tuple[int, str], list[int]] = {}
        self.known: dict[int, set[str]] = {}

    @initialize(turns=st.lists(st.integers(0, 2), min_size=3, max_size=3))
    def begin(self, turns: list[int]) -> None:
        self.turns = turns
        self.links = {(here, there): deque() for here in range(3) for there in range(3) if here != there}
        self.members = [Member(number, self) for number in range(3)]
        self.known = {number: set(QUEUES) for number in range(3)}

    def publish(self, source: int, notice: GroupNotice) -> None:
        for (here, _), notices in self.links.items():
            if here == source and notices is not None:
                notices.append(notice)

    # -- messages -----------------------------------------------------------------------------------

    def _attempt(self, number: int, group: str, message: int) -> None:
        """Route a message, or wait: as a session does it, with all that came after."""
        member = self.members[number]

        def propose() -> str:
            self.turns[number] += 1
            return QUEUES[self.turns[number] % 3]

        waits = member.groups.ask(f"{group}.q", sorted(self.known[number]), propose)
        if waits is not None:
            waits.when_decided(lambda: self._attempt(number, group, message))
            return
        queue = member.groups.queue_of(f"{group}.q")
        self.order.setdefault((number, group), []).append(message)
        if queue is not None:
            self.routed.setdefault(group, set()).add(queue)

    @rule(number=st.integers(0, 2), group=st.sampled_from(GROUPS))
    def send(self, number: int, group: str) -> None:
        """A message of a group, of any session of a node."""
        message = self.sent[number, group] = self.sent.get((number, group), -1) + 1
        self._attempt(number, group, message)

    # -- network ------------------------------------------------------------------------------------

    @rule(data=st.data())
    def deliver(self, data: Any) -> None:
        """The next notification of one link."""
        ready = sorted(link for link, notices in self.links.items() if notices)
        if ready:
            here, there = data.draw(st.sampled_from(ready))
            notices = self.links[here, there]
            assert notices
            self.members[there].groups.heard(notices.popleft(), IDS[here])

    @rule(here=st.integers(0, 2), there=st.integers(0, 2))
    def lose(self, here: int, there: int) -> None:
        """A link is lost with all that is under way."""
        if here != there:
            self.links[here, there] = None

    @rule(here=st.integers(0, 2), there=st.integers(0, 2))
    def restore(self, here: int, there: int) -> None:
        """A link is there again."""
        if here != there and self.links[here, there] is None:
            self._listen(here, there)

    def _listen(self, here: int, there: int) -> None:
        self.links[here, there] = deque()
        self.members[here].groups.resend()
        self.members[there].groups.member_reported(IDS[here])

    @rule(milliseconds=st.sampled_from([1, TIMEOUT_MS, 3 * TIMEOUT_MS]))
    def pass_time(self, milliseconds: int) -> None:
        for member in self.members:
            member.world.clock.advance(milliseconds)

    @rule()
    def sync(self) -> None:
        """The log of the node that decides reaches the disk."""
        self.members[0].sync()

    @precondition(lambda self: not any(each.groups.waiting for each in self.members))
    @rule(number=st.integers(1, 2))
    def restart(self, number: int) -> None:
        """A member that does not decide forgets everything; its links are new."""
        old = self.members[number]
        old.groups.close()
        self.members[number] = Member(number, self, old.world)
        for other in range(3):
            if other != number:
                self._listen(number, other)
                self._listen(other, number)

    @precondition(lambda self: not self.members[0].groups.waiting)
    @rule()
    def restart_the_one_that_decides(self) -> None:
        """Restart the member that decides about groups; it reads its bindings from the log."""
        old = self.members[0]
        old.sync()
        old.groups.close()
        self.members[0] = Member(0, self, old.world)
        for other in (1, 2):
            self._listen(0, other)
            self._listen(other, 0)

    # -- promises -----------------------------------------------------------------------------------

    @invariant()
    def a_group_has_one_queue(self) -> None:
        for group, queues in self.routed.items():
            assert len(queues) == 1, f"{group}: {queues}"

    @invariant()
    def messages_of_a_group_keep_their_order(self) -> None:
        for messages in self.order.values():
            assert messages == list(range(len(messages)))

    def teardown(self) -> None:
        """Check that in the end every message is routed, although perhaps without its group."""
        if not self.links:
            return
        for link in self.links:
            self.links[link] = None
        self.members[0].sync()
        for _ in range(11):
            self.pass_time(TIMEOUT_MS)
            self.members[0].sync()
        for key, last in self.sent.items():
            assert self.order.get(key, []) == list(range(last + 1)), key
        assert sum(each.groups.waiting for each in self.members) == 0


TestGroupCluster = GroupCluster.TestCase
