"""Executions that used up their tries or can't be retried, for a person to look at."""
