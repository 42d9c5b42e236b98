"""The due-time index and the shard leases: what is due next, and who serves it. Shared schema."""
