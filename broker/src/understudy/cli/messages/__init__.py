"""Commands that send and receive single messages over the client; ``produce`` and ``consume`` make load."""
