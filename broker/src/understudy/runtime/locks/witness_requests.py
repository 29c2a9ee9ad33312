"""Single requests to a witness, each over a connection of its own: for commands."""

from __future__ import annotations

import asyncio

from understudy.errors import BrokerError, CallTimedOut, LockManagerUnavailable
from understudy.ha.witness.client import WitnessDialer
from understudy.ha.witness.frames import Answer, Kind, Request
from understudy.ha.witness.link import WitnessLink, WitnessLinkOwner
from understudy.ha.witness.options import WitnessClientOptions
from understudy.ports import Entropy


class _Asker(WitnessLinkOwner):
    """Owner of a link over which one request is sent."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.answer: asyncio.Future[Answer | BrokerError] = asyncio.get_running_loop().create_future()

    def link_welcomed(self, link: WitnessLink) -> None:
        """Send the request to the witness."""
        link.send(self._request)

    def link_answered(self, link: WitnessLink, answer: Answer) -> None:
        """Keep the answer of the witness."""
        if not self.answer.done():
            error = LockManagerUnavailable(f"witness {link.address}: {answer.text}")
            self.answer.set_result(error if answer.kind is Kind.ERROR else answer)

    def link_lost(self, link: WitnessLink, reason: str) -> None:
        """Keep the error that ended the link."""
        if not self.answer.done():
            self.answer.set_result(LockManagerUnavailable(f"witness {reason}"))


class WitnessRequests:
    """Requests of one command to witnesses."""

    def __init__(self, dialer: WitnessDialer, entropy: Entropy, secret: bytes, name: str, timeout_s: float) -> None:
        """Args:
        dialer: Opens connections.
        name: Name of the client, for their logs.
        """
        self._dialer = dialer
        self._entropy = entropy
        self._secret = secret
        self._name = name
        self._timeout_s = timeout_s

    async def ask(self, place: tuple[str, int], request: Request) -> Answer:
        """The answer of the witness at a host and port.

        Raises:
            CallTimedOut: there is none in time.
            LockManagerUnavailable: it cannot be reached, or cannot carry the request out.
        """
        host, port = place
        asker = _Asker(request)
        options = WitnessClientOptions([place], self._secret, self._name)
        link = WitnessLink(asker, options, None, self._entropy.token, f"{host}:{port}")
        self._dialer.dial(host, port, link)
        try:
            async with asyncio.timeout(self._timeout_s):
                found = await asker.answer
        except TimeoutError as error:
            raise CallTimedOut(f"witness {host}:{port}: no answer within {self._timeout_s} s") from error
        finally:
            link.close()
        if isinstance(found, BrokerError):
            raise found
        return found
