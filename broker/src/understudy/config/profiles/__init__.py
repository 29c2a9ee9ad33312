"""Connection factories of a broker.xml: named settings of clients, with the client URL that they make (ADR 0178).

``schema`` has the rows, ``factory`` the values of one factory, its URL and its JNDI properties.
"""
