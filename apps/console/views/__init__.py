"""The console's own pages, one module for each: `apps.console.pages` finds them here. What they read is elsewhere."""
