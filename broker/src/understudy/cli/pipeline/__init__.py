"""Commands that start jobs of the Spark pipeline."""
