"""Management of a node: one model of it, and the doors that show it (ADR 0137).

``model`` declares the values, ``snapshot`` reads them from an active broker, ``view`` is the port to a node, ``doors``
are the projections for HTTP, messages, metrics and OpenAPI. ``operations`` are the declared operations, ``events`` the
notifications and counters, ``waiting`` the reasons why messages wait. ``runtime/management/`` serves them over HTTP.
"""
