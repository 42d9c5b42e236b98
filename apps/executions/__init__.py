"""Execution and attempt history, in the tenant's schema."""
