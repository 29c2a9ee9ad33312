"""``understudy cli``: the management CLI as a command, with scripts and a prompt."""
