"""Goal: a number of a group of witnesses changes from each value once, and never goes back, in any order of messages,
losses, concurrent changes, and replacements of a member. No network: requests wait until the test carries them out.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from understudy.errors import BrokerError, LockManagerUnavailable
from understudy.ha.witness.frames import NO_TOKEN, Answer, Kind, Request
from understudy.ha.witness.majority_number import MajorityNumber, Round
from understudy.ha.witness.service import Witness
from understudy.ha.witness.state import WitnessState, decode_state
from understudy.runtime.locks.witness_groups import replace
from understudy.testing.manual_time import ManualTime

GROUP = bytes(range(16))
PLACES = [(f"w{number}", 1) for number in range(3)]


class Host:
    """A witness whose state is on the disk at once; a crash loses nothing, ``lose_state`` everything."""

    def __init__(self, time: ManualTime, number: int, *, configuration: int) -> None:
        state = WitnessState(bytes([number]) * 16, configuration=configuration, group=GROUP if configuration else b"")
        self.time = time
        self.witness = Witness(state, time, self._save, self._failed, 10_000)
        self.up = True

    def _save(self, data: bytes, done: Callable[[BaseException | None], None]) -> None:
        decode_state(data, "state")
        done(None)

    def _failed(self, error: BrokerError) -> None:
        raise AssertionError(error)

    def ask(self, request: Request) -> Answer:
        answers: list[Answer] = []
        self.witness.handle(request, "client", answers.append)
        return answers[0]


class Site:
    """Three witnesses and the messages between them and the clients. Implements ``majority_number.Group``."""

    name = "group"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.time = self.timers = ManualTime()
        self.hosts = [Host(self.time, number, configuration=1) for number in range(3)]
        self.members = [Client(self, number) for number in range(3)]
        self.entropy = self
        self.messages: list[Callable[[], None]] = []
        self.replaced = 3

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def lose_state(self, number: int) -> None:
        self.replaced += 1
        self.hosts[number] = Host(self.time, self.replaced, configuration=0)

    def step(self) -> None:
        """Deliver one message, any of them."""
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))()


class Client:
    """Implements ``majority_number.Member``: a request reaches the process that was there when it was sent, or none."""

    def __init__(self, site: Site, number: int) -> None:
        self.site = site
        self.number = number

    def ask(
        self,
        kind: Kind,
        lock_id: str,
        answer: Callable[[Answer | BrokerError], None],
        *,
        token: bytes = NO_TOKEN,
        first: int = 0,
        second: int = 0,
    ) -> bool:
        site, request = self.site, Request(kind, 1, lock_id, token, first, second)
        host = site.hosts[self.number]

        def arrive() -> None:
            found: Answer | BrokerError
            # a member that was replaced may go on, unknown to the operator
            if not host.up or site.random.random() < 0.05:
                found = LockManagerUnavailable("lost")
            else:
                found = host.ask(request)
                if found.kind is Kind.ERROR or site.random.random() < 0.05:
                    found = LockManagerUnavailable("answer lost")
            site.messages.append(lambda: answer(found))

        site.messages.append(arrive)
        return True


#: Seeds that find a member which takes ballots of another configuration, or a member that joins before the others have
#: the next one; those of the range find other mistakes.
RARE = (878, 940, 2382, 3127, 3520, 4336)


@pytest.mark.parametrize("seed", [*range(400), *RARE])
def test_a_number_changes_from_each_value_once(seed: int) -> None:
    site = Site(seed)
    changed: dict[int, int] = {}
    """Number of changes that succeeded, by the value before the change."""
    known = 0
    """Highest value that a finished operation has shown."""
    rounds: list[Round] = []

    def begin() -> None:
        expected, floor = known + site.random.choice((0, 0, 0, 1)), known

        def swapped(found: bool | BrokerError) -> None:
            nonlocal known
            if found is True:
                changed[expected] = changed.get(expected, 0) + 1
                known = max(known, expected + 1)

        def read(found: int | BrokerError) -> None:
            nonlocal known
            if not isinstance(found, BrokerError):
                assert found >= floor, f"read {found} after {floor}"
                known = max(known, found)

        number = MajorityNumber(site, "n")
        if site.random.random() < 0.6:
            rounds.append(number.compare_and_set(expected, expected + 1, swapped))
        else:
            rounds.append(number.get(read))

    for _ in range(site.random.randint(60, 250)):
        action = site.random.random()
        if action < 0.12:
            begin()
        elif action < 0.15:
            site.time.advance(50)
        elif action < 0.16:
            host = site.random.choice(site.hosts)
            host.up = not host.up
        elif action < 0.17:
            replace_one(site)
        else:
            site.step()
    for host in site.hosts:
        host.up = True
    while site.messages:
        site.step()
        site.time.advance(1)
    assert all(count == 1 for count in changed.values()), changed
    assert not changed or known >= max(changed) + 1


def replace_one(site: Site) -> None:
    """A member loses its state; the procedure, which may end between any two requests, lets another one join."""
    number = site.random.randrange(3)
    if all(host.witness.status()["configuration"] for host in site.hosts):
        site.lose_state(number)
    number = next(place for place, host in enumerate(site.hosts) if not host.witness.status()["configuration"])

    async def ask(place: tuple[str, int], request: Request) -> Answer:
        host = site.hosts[PLACES.index(place)]
        # requests of nodes go on meanwhile
        for _ in range(site.random.randrange(4)):
            site.step()
        if not host.up or site.random.random() < 0.05:
            raise LockManagerUnavailable(f"{place} does not answer")
        return host.ask(request)

    # nothing in it waits: one step carries it out
    with suppress(StopIteration, LockManagerUnavailable):
        replace(ask, PLACES, PLACES[number]).send(None)
