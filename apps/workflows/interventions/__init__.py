"""What persons do to runs and steps: retry, rerun, skip, force, approve, pause."""
