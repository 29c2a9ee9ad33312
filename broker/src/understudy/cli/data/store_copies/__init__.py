"""Commands that copy whole stores and put copies back: ``understudy data backup``, ``restore`` and ``set-aside``."""
