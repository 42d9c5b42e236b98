"""The tenants' console: pages on a tenant's host, below /console/, over the same services as the API."""
