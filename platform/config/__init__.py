"""Settings from the environment, URLs, entry points for web servers, logging; which apps are shared, which per tenant."""
