"""Who uses the platform: tenants, domains, plans, members, API keys; provisioning; the only door into a schema."""
