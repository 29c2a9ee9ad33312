"""The witness: locks by leases and numbers on a third host; its client, its frames, and groups of witnesses."""
