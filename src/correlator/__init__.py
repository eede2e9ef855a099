"""Correlator: from a red data test to the run that broke it, what changed, and who is hurt."""

__version__ = "0.1.0"
