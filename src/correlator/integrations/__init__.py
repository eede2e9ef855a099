"""What Correlator adds to other tools. Nothing here needs Correlator's own rooms."""
