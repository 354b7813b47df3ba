"""The doctor inside other people's training loops, and what it may do there."""
