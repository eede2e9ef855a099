"""HTTP: events come in, answers go out."""
