"""Tenants as a whole: suspended, renamed, exported and imported."""
