"""High availability: HA policies as declared state machines that use only ports."""
