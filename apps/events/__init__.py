"""What happened in a tenant, for others to hear of: an outbox, written in the transaction of each effect.

Events are read in the order of `(tx, id)`, where `tx` is the number of the transaction that wrote them, and only those
below the oldest transaction that still runs. So whatever commits late comes later in the order than all that was read,
and nobody who reads on from where they were misses an event. Types of which there is one for each run are only written
while a webhook asks for them (`kernel.eventtypes`); a process hears of a new webhook within seconds.

`apps.due.bells` rings for whoever carries events out: a narrow row in the shared schema, so that nobody has to look
into the tenants' schemas for news.
"""
