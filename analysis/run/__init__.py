"""run: an unmodified training script under a watch, and the report of it."""
