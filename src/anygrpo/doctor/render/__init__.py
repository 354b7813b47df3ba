"""A diagnosis as JSON, on the terminal, or as a page."""
