"""The platform's own periodic work, run as PeriodicTasks of celery beat (visible in the admin)."""
