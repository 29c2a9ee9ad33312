"""Commands that change the configuration of an instance."""
