"""Expiry, dead letters, redelivery, schedules, diverts, duplicate ids, quarantine and automatic deletion."""
