"""Sessions of clients: requests, consumers, credits and transactions."""
