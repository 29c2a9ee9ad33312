"""The shared-store policy: one lock decides which node is active."""
