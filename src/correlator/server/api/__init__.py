"""What can be asked over HTTP, one module for each noun. `catalogue.py` lists all of it."""
