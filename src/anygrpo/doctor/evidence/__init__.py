"""What several rules ask of a run, answered once: progress, dead groups, largest advantages, chains of causes."""
