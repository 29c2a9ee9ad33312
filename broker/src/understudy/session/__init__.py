"""Sessions: what one client asked for, its consumers, credits and transaction."""
