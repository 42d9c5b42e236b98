"""The `make run` program and its demo data."""
