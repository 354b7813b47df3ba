"""Moving in: another trainer's settings as a recipe of the same meaning. Reads, and never runs what it reads."""
