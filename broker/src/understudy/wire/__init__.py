"""Bytes to packets and back, for every protocol; what a packet means is decided elsewhere."""
