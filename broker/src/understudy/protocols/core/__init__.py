"""The CORE protocol of a server: connections, their channels, and what each packet asks for."""
