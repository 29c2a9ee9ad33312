"""What several test layers share: real broker processes on loopback."""
