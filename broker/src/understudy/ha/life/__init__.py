"""The life of a node under any policy: follow, activate, serve, yield, stop and fail."""
