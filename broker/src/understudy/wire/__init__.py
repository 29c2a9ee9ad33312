"""Encoding and decoding of packets, for every protocol, without their meaning."""
