"""Ledgers as frames, and the rules of ``understudy.ledger`` on them."""
