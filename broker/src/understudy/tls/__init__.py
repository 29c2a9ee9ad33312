"""TLS settings, certificates and key stores; shared by the broker and the client."""
