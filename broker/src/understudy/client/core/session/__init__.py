"""Sessions of the client: creation, sends, confirmations, transactions."""
