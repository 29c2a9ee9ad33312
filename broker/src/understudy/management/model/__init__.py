"""The model of a node: immutable values that every door of management shows (ADR 0137).

Each field is declared once, with its meaning, its unit, its name in Artemis' management and the name of its metric
(``figure``). The doors (``management.doors``) are projections of these values; ``management.snapshot`` and the shell
(``runtime.management.node_view``) read them from a running node.
"""
