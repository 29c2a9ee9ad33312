"""High availability: who serves, decided by declared machines that touch the world only by ports."""
