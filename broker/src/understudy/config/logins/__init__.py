"""Login modules of Artemis: ``login.config`` and the options of its modules."""
