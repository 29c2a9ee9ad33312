"""Named addresses and ports of a broker.xml: interfaces and socket bindings (ADR 0177).

``schema`` has the rows of the elements beside ``core``; ``bindings`` resolves a name to an address and a port.
"""
