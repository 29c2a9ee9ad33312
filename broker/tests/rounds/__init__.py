"""Rounds of faults on real pairs: kills, power failures and disk faults under load, each judged by its ledgers."""
