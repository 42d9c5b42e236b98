"""What everything stands on and nothing of Django: clock, ids, transitions, back-off, errors, the one service loop."""
