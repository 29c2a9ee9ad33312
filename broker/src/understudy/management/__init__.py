"""Management of a node: operations, attributes and metrics as plain data, without HTTP.

``controls`` defines the interface of a node (``NodeView``) and makes the JSON; ``metrics`` makes the
Prometheus families; ``openapi`` is the machine-readable description of both, ``docs/management-api.md``
the documentation. ``runtime/http.py`` serves them.
"""
