"""The management model of the CLI documents: resources, operations on them, and their texts (ADR 0169).

``values`` and ``text`` are the values and their notation, ``grammar`` the lines of a script, ``resources`` the
declared table of resource types, ``tree`` reads them from a checked broker.xml, ``operations`` makes sets of changes,
``batch`` several of them as one, and ``requests`` has their HTTP form. Nothing here reads or writes a file.
"""
