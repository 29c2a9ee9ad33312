"""The policy of a node, as its configuration asks for it."""

from __future__ import annotations

from understudy.config.model import Configuration
from understudy.ha.policy import Decisions, Policy, Role, Standby
from understudy.ha.shared_store import SharedStoreOptions, SharedStorePolicy
from understudy.ha.store_lock import StoreLock
from understudy.ports import Clock, Timers


def make_policy(
    configuration: Configuration, life: Decisions, standby: Standby, lock: StoreLock, clock: Clock, timers: Timers
) -> Policy:
    """The policy that element ``ha-policy`` names.

    Args:
        configuration: Of the node.
        life: Takes the decisions.
        standby: The node.
        lock: Of its store.
        clock: Goes on while the machine is suspended.
        timers: Of the loop.
    """
    policy = configuration.ha_policy
    options = SharedStoreOptions(
        role=Role(policy.role.value),
        failover_on_shutdown=policy.failover_on_shutdown,
        allow_failback=policy.allow_failback,
        restart_backup=policy.restart_backup,
        lock_timeout_ms=configuration.journal_lock_acquisition_timeout_ms,
    )
    return SharedStorePolicy(options, life, standby, lock, clock, timers)
