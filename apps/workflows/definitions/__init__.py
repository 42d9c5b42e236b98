"""How workflows are written, checked, stored and read again, and what the graph of a version is."""
