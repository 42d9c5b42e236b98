"""Signing in with the company's identity provider: OpenID Connect, authorization code with PKCE. Off until set up.

What the provider of one tenant says counts in that tenant alone: it finds or makes members there, whose logins nobody
else has (tenants.people), and opens sessions that are good on that tenant's host (tenants.sessions).
"""
