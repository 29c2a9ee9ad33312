"""Commands that check copies of journals and change nothing."""
