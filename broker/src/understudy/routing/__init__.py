"""Addresses, bindings, queues and the post office that takes messages to them."""
