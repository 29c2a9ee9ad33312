"""Migration from Artemis: what an instance directory has, what of it works here, and what to do about the rest."""
