"""Messages of a store and the references of queues to them, in memory and on pages."""
