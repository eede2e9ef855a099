"""PySpark: events become facts."""
