"""The asyncio shell of the server: implements the ports with sockets, threads, clocks and files."""
