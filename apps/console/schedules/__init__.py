"""What the pages about a tenant's schedules read and say: results, who paused, what a form would change."""
