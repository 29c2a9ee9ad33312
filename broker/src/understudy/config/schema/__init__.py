"""The schema of broker.xml as rows: element names, types, defaults, meanings. ``grammar`` has the classes of rows."""
