"""Companies that do not exist: their data, their faults, and the events that they would send."""
