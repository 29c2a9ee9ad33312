"""The pure client: the state of one connection, without I/O, clock or event loop.

``connection.ClientState`` is the root. A shell (``client.aio``, ``client.sync``) gives it the bytes of a socket, the
time and the calls of the application, and carries out its calls of ``connection.Link``.

- Where and how to connect: ``url``, ``options``, ``parameters``, ``discovery``, ``topology``.
- One connection and its failovers: ``connection``, ``failover``, ``dials``, ``restoration``, ``listeners``, ``pump``.
- One session: ``session``, ``session_creation``, ``calls``, ``confirmations``, ``transactions``, ``xa``,
  ``destinations``.
- Messages out: ``sends``, ``large_sends``, ``bodies``, ``rate``.
- Messages in: ``consumers``, ``consumer``, ``body_stream``.
"""
