"""The length of the cluster password, of which a stranger that is dialled can test guesses."""

from __future__ import annotations

import pytest

from support.config import CONNECTORS, cluster, fails, read
from understudy.limits import CLUSTER_PASSWORD_CHARACTERS_MIN


def text(password: str, *, clustered: bool) -> str:
    element = f"<cluster-password>{password}</cluster-password>"
    return cluster("", head=element + CONNECTORS) if clustered else element


@pytest.mark.parametrize("clustered", [True, False], ids=["cluster connection", "proofs of bridges"])
@pytest.mark.parametrize("length", [1, CLUSTER_PASSWORD_CHARACTERS_MIN - 1])
def test_a_short_cluster_password_is_refused_by_its_element(length: int, clustered: bool) -> None:
    error = str(fails(text("x" * length, clustered=clustered)))
    assert "core/cluster-password" in error
    assert f"is shorter than {CLUSTER_PASSWORD_CHARACTERS_MIN} characters" in error


@pytest.mark.parametrize("clustered", [True, False], ids=["cluster connection", "proofs of bridges"])
def test_the_shortest_cluster_password_is_taken(clustered: bool) -> None:
    password = "x" * CLUSTER_PASSWORD_CHARACTERS_MIN
    assert read(text(password, clustered=clustered)).configuration.cluster_password == password
