"""Commands for messages: send, receive, browse, queues, bridges."""
