"""What tenants use of what their plan allows: quotas of runs, and figures of what was done (docs/usage.md).

Quotas are exact. Whoever admits runs counts them under a lock, in the transaction of its effect: `admitting` for
runs that somebody asks for, `counting` for what is fired, `rates` for what is released.

Figures are for people: `deltas` adds one row to each transaction that fires, submits, releases or settles; `rolling`
sums these rows up into minutes, hours and days; `reading` reads them. Nobody but `rolling` writes a row that others
write too, so nobody waits for a figure.
"""
