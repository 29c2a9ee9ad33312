"""Planted bugs of a replicated pair: stale data, confirmations that do not wait, copies that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from planted.planting import Patch, planted
from understudy.ha.locks import activation_sequence
from understudy.ha.locks.activation_sequence import ActivationRequest
from understudy.ha.locks.sequence_verdict import Verdict
from understudy.ports import Operation
from understudy.runtime.node.store_watch import StoreWatch
from understudy.store.log import epoch
from understudy.store.log.operation_context import OperationContext
from understudy.store.log.operations import Append
from understudy.store.messages.message_store import MessageStore
from understudy.store.replication import shipping
from understudy.store.replication.shipping import Shipping
from understudy.store.seen import SeenPosition
from understudy.testing.runs.fault_plan import ACTIVE, PASSIVE, Fault, FaultKind
from understudy.testing.runs.scenario_run import ScenarioRun
from understudy.testing.scenarios.replicated_pair import with_pair_faults

_REPLICATION: Final = "replication"
_MEMBER_REPLICAS: Final = "member-replicas"
NOT_LOST: Final = "no confirmed durable message is lost"
#: What shows when a node serves without the newest data.
OLD_DATA: Final = ("lost", "duplicated", "reordered", "refused", "unresolved", "epoch", "two-confirming")


@planted(
    "stale-data-activates", promise="a node with stale data does not become active by itself",
    checks=[*OLD_DATA, "ended"],
    elsewhere={_REPLICATION: range(4)},
)  # fmt: skip
def _stale_data_activates(patch: Patch) -> type[ScenarioRun]:
    """A node that gets the lock activates although the activation sequence says that its data is old, and takes the
    number of the newer data for its own. Without the second part its claim fails. The noted position ends the node:
    three barriers keep old data out.
    """

    def compare(shared: int, local: int) -> Verdict:
        verdict: Verdict = old(shared, local)
        return Verdict.IN_SYNC if verdict is Verdict.STALE else verdict

    def permitted(self: ActivationRequest) -> None:
        self._local.value = abs(self.found)
        permit(self)

    old = patch.replace(activation_sequence, "compare", compare)
    permit = patch.replace(ActivationRequest, "_permitted", permitted)
    return with_pair_faults(Fault(0, 8.0, FaultKind.PART_THEN_KILL, "", 8.0, 0.99, 0))


@planted("confirmed-before-replica", promise=NOT_LOST, checks=["lost"], elsewhere={_REPLICATION: range(7, 12)})
def _confirmed_before_replica(patch: Patch) -> type[ScenarioRun]:
    """Confirmations do not wait for a replica that is in sync."""
    patch.replace(OperationContext, "attach_replica", lambda self: None)
    return with_pair_faults(Fault(0, 8.0, FaultKind.PART_THEN_KILL, "", 8.0, 0.3, 0))


@planted("confirmed-before-claim", promise=NOT_LOST, checks=OLD_DATA, elsewhere={_REPLICATION: range(4)})
def _confirmed_before_claim(patch: Patch) -> type[ScenarioRun]:
    """A node that has lost its replica confirms before it has raised the activation sequence."""
    patch.replace(Shipping, "stop_sending", lambda self: self.detach())
    return with_pair_faults(Fault(0, 8.0, FaultKind.ACTIVE_ALONE, "", 10.0, 0.0, 0))


@planted("epoch-kept", promise="epochs only grow", checks=["epoch"], elsewhere={_REPLICATION: range(3)})
def _epoch_kept(patch: Patch) -> type[ScenarioRun]:
    """A node that becomes active takes the epoch of the node before."""
    old: Callable[[Any], int] = patch.replace(epoch, "newest_epoch", lambda names: max(0, old(names) - 1))
    return with_pair_faults(Fault(0, 8.0, FaultKind.KILL, ACTIVE, 8.0, 0.0, 0))


@planted(
    "replica-forgets-acknowledgements", promise="an acknowledged message is not delivered again",
    checks=["duplicated", "left-over"], elsewhere={_REPLICATION: range(4), _MEMBER_REPLICAS: range(2)},
)  # fmt: skip
def _replica_forgets_acknowledgements(patch: Patch) -> None:
    """Every tenth acknowledgement is confirmed and not written."""
    count = 0

    def store_acknowledges(self: MessageStore, *arguments: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if count % 10:
            old(self, *arguments, **options)

    old = patch.replace(MessageStore, "store_acknowledges", store_acknowledges)


@planted(
    "operation-not-replicated", promise="a replica in sync has the files of its active node", checks=["copy"],
    elsewhere={_REPLICATION: range(4)},
)  # fmt: skip
def _operation_not_replicated(patch: Patch) -> type[ScenarioRun]:
    """Submissions that are no batch of the log, such as a new or a removed segment, are not executed by the replica."""

    def replicated(operations: Sequence[Operation]) -> Sequence[Operation]:
        kept: Sequence[Operation] = old(operations) if type(operations[0]) is Append else []
        return kept

    old = patch.replace(shipping, "replicated", replicated)
    return with_pair_faults(Fault(0, 2.0, FaultKind.KILL, PASSIVE, 0.3, 0.0, 0))


#: Both nodes end, the disk of the active one is put back, and that one starts first.
_PUT_BACK: Final = Fault(0, 6.0, FaultKind.PUT_BACK, "", 20.0, 0.1, 0)


@planted(
    "noted-position-ignored", promise="a node with stale data does not become active by itself",
    checks=("no-service", "not-in-sync", *OLD_DATA), elsewhere={_REPLICATION: range(3)},
)  # fmt: skip
def _noted_position_ignored(patch: Patch) -> type[ScenarioRun]:
    """A node whose disk was put back activates although the lock manager has noted a later position of its store. The
    copy of its replica then proves that, so both nodes wait for an operator.
    """
    patch.replace(SeenPosition, "check_kept", lambda self, found, kept, keeper: None)
    return with_pair_faults(_PUT_BACK)


@planted("complete-copy-set-aside", promise=NOT_LOST, checks=OLD_DATA, elsewhere={_REPLICATION: range(3)})
def _complete_copy_set_aside(patch: Patch) -> type[ScenarioRun]:
    """The same, and the proof of the replica is ignored: its complete copy is set aside for the older one."""
    patch.replace(SeenPosition, "check_kept", lambda self, found, kept, keeper: None)
    patch.replace(StoreWatch, "put_back", lambda self, store, epoch, sequence: None)
    return with_pair_faults(_PUT_BACK)
