"""Consumers of the client, and the bodies of messages in both directions."""
