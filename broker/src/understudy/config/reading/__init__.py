"""Reading broker.xml: ``document`` checks elements against the schema, ``reader`` makes a ``Configuration`` of them."""
