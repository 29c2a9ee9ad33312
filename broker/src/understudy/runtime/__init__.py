"""The server's only asyncio: sockets, threads, clocks and files behind the ports."""
