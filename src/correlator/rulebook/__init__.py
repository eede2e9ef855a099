"""Pure rules over one OpenLineage event or one run: no I/O, no SQL, no Spark."""
