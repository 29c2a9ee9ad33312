"""The node that takes over when another one fails, the loss then, and the action to take: one sentence of every door.

``understudy ha``, ``status``, ``/api/v1/node``, ``/health/ready``, a metric and the log have the same text (ADR 0153).
It names no path, because ``/health/ready`` needs no token.
Not here: where the facts come from (``runtime.management.protection``), and the value of the model with the same fields
(``model.node.Protection``), which needs modules that a node without management does not load.
"""

from __future__ import annotations

from understudy.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that decide whether a node is protected."""

    policy: str
    """``shared-store``, ``replication`` or ``primary-only``."""
    role: str
    """``primary``, ``backup`` or ``primary-only``."""
    state: str
    """State of the node, one of ``model.node.STATES``."""
    persistent: bool = True
    """Whether messages are kept on disk."""
    peer: str | None = None
    """host:port of the other node: of an active node the one that may take over, of a passive node the active one."""
    peer_name: str | None = None
    """Name of that node; None: it has not stated one."""
    copying: bool = False
    """Whether an active node copies its store to a replica, which may not take over yet."""
    manager_fault: str | None = None
    """Reason why the lock manager of an active node does not answer; None: it does, or there is none."""
    unfit: str | None = None
    """Reason why a passive node would not take over; None: it would."""
    in_line: bool = False
    """Whether another backup takes over before a passive node."""


@dataclass(frozen=True, slots=True)
class Protection:
    """The answer for one node."""

    protected: bool
    """Whether another node serves soon after this one fails, or this node after the active one."""
    successor: str | None
    """host:port of the node that takes over; None: no node, this node itself, or an unknown address."""
    who: str
    """The node that takes over, as a clause."""
    loss: str
    """The loss if the active node fails now, as a clause."""
    advice: str | None
    """The action to take, as sentences; None: none."""

    @property
    def sentence(self) -> str:
        """The protection of a node in one sentence, for pages, commands and log lines."""
        text = f"{self.who}; {self.loss}"
        return text if self.advice is None else f"{text}. {self.advice}"


#: Nothing that was confirmed is lost. Messages that are not durable are not part of a store.
_KEPT = "no confirmed durable message is lost"


def protection_of(facts: Facts) -> Protection:
    """Decide which node takes over."""
    if facts.state == "active":
        return _of_active(facts)
    if facts.state == "passive":
        return _of_passive(facts)
    return Protection(
        False,
        None,
        f"no node takes over from this node: it is {facts.state}",
        "it serves no clients at present",
        "Look at the other node with `understudy ha --url`." if facts.policy != "primary-only" else None,
    )


def _of_active(facts: Facts) -> Protection:
    if facts.policy == "primary-only":
        if facts.persistent:
            loss = f"after a failure nothing is served until it is started again, and {_KEPT} while its store is whole"
        else:
            loss = "persistence is off, so all messages are lost when it ends"
        return Protection(
            False,
            None,
            "no node takes over: this node is a single server",
            loss,
            "A pair needs an ha-policy: see `understudy create --partner`.",
        )
    if facts.manager_fault is not None:
        return Protection(
            False,
            None,
            f"no node takes over: the lock manager does not answer ({facts.manager_fault})",
            f"{_KEPT}, but nothing is served after a failure of this node until the lock manager answers",
            "Start the lock manager again.",
        )
    if facts.peer is not None:
        who = f"{_shown_peer(facts)} takes over when this node fails"
        return Protection(True, facts.peer, who, _loss_of_pair(facts), None)
    if facts.policy == "replication":
        who = "no node takes over: no replica is in sync"
        if facts.copying:
            who = "no node takes over yet: a replica copies the store of this node"
        return Protection(
            False,
            None,
            who,
            "all messages are lost if its store is lost",
            None if facts.copying else f"Start the {_other(facts.role)}, or look at its log.",
        )
    return Protection(
        False,
        None,
        "no node takes over: no backup is connected, this node is alone",
        f"after a failure nothing is served until a node of the pair is started, and {_KEPT}",
        f"Start the {_other(facts.role)}, or look at its log.",
    )


def _of_passive(facts: Facts) -> Protection:
    active = _shown_peer(facts)
    if facts.unfit is not None:
        return Protection(
            False,
            None,
            f"this node does not take over from {active}: {facts.unfit}",
            "unless another node is ready, nothing is served after a failure of the active node",
            "Correct the reason; `understudy status` shows when the node is ready.",
        )
    who = f"this node takes over when {active} fails"
    if facts.in_line:
        who = f"another backup takes over when {active} fails, this node is the next in line"
    return Protection(True, None, who, _loss_of_pair(facts), None)


def _shown_peer(facts: Facts) -> str:
    """Name and address of the other node, as far as they are known."""
    if facts.peer is None:
        return "the active node"
    return facts.peer if facts.peer_name is None else f"{facts.peer_name} ({facts.peer})"


def _loss_of_pair(facts: Facts) -> str:
    replicated = facts.policy == "replication"
    return f"{'its copy has every confirmed record' if replicated else 'both nodes use the same store'}: {_KEPT}"


def _other(role: str) -> str:
    return "primary" if role == "backup" else "backup"
