"""Append-only trail of what was done, by whom, to what."""
