"""Job ``flow``: the movement of messages, and forecasts of disks."""
