"""The forecast: how many runs the due-time index will make in each minute of a day and each hour of a week.

One dispatcher keeps it, the holder of the reconcile lease. `looking` reads the due entries of one shard after the other
and expands them (`apps.schedules.forecasting`), `service` decides what comes next, adds what has changed since, and
writes the total; `pacing` says when, `summing` makes the total out of the shards, `crowd` finds who is in the fullest
minutes. What pages, answers and commands read is one row (`apps.due.forecast.read`).
"""
