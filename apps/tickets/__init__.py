"""Live state of executions that are not finished. Shared schema; a row goes when its execution ends."""
