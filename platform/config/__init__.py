"""Settings from the environment, URLs, entry points for web servers, logging; what is shared and what per tenant."""
