"""What runs and when: job and schedule definitions, and the pure time code that fire, preview and explain share."""
