"""URLs of brokers: parameters, options, names of destinations."""
