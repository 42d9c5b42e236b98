"""Operator pages in the Django admin."""
