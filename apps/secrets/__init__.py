"""A tenant's secrets: encrypted where they rest, decrypted only in the worker that is about to use them.

Envelope encryption. The operator's key-encryption keys (SECRETS_KEYS) wrap one data key a tenant; the data key
encrypts the tenant's values with AES-256-GCM. What a ciphertext is for is authenticated with it (tenant, purpose, name,
version), so a row that is moved to another tenant, name or version can't be decrypted.
"""
