"""PostgreSQL: what Correlator keeps, and how it is asked for."""
