"""Queues, their pending messages and kinds, and the choice of the consumer that gets the next message."""
