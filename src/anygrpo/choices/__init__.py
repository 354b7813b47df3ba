"""Every choice of an algorithm as a card. Standard library only."""
