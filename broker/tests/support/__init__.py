"""Support of several test layers: real broker processes on loopback."""
