"""What becomes of old history: what is held, what was erased, and what is kept in files."""
