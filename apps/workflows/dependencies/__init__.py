"""Executions that wait for others, outside any workflow."""
