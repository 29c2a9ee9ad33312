"""What an operator may ask of a node and tell it: plain data in, plain data out, no HTTP here.

``controls`` says what a node must offer (``NodeView``) and makes the JSON; ``metrics`` makes the
Prometheus families; ``openapi`` describes both for machines, ``docs/management-api.md`` for people.
``runtime/http.py`` serves them.
"""
