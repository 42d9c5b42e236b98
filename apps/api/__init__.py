"""The tenants' REST API, version 1."""
