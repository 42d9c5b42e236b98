"""The inbound conductor: settle an attempt, then retry, dead-letter or finish its execution."""
