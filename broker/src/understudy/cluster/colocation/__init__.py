"""Colocated backups: members of a cluster ask each other to host their backups (docs/operate/colocated.md, ADR 0073).

``requests`` is the machine of a node that wants a backup; ``hosting`` decides which backups this node hosts. Not here:
the configuration of a hosted backup (``config.colocated``) and its start (``runtime.members.colocation``).
"""
