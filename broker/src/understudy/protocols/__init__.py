"""Protocols of clients: services shared by all of them, and one package per protocol.

The modules of this package know no protocol: ``services`` (given to every connection), ``registry`` (connections of
the node), ``access`` (permissions, violations), ``login`` (password checks), ``liveness`` (timeouts), ``handlers``
(table of protocols). A protocol package uses them and ``session``; other packages do not use its types.
"""
