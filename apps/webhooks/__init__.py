"""Webhooks: who is told of events, and how the telling is carried out.

A webhook has read the tenant's events up to a position; the fan-out (`fanout.py`, called by a step of the dispatcher)
reads on from there and makes a delivery of each event that fits. Deliveries and the new position are one transaction,
under the webhook's row, so whatever crashes, each event makes one delivery. At most LIVE_MAX deliveries of a webhook
are alive; the rest of the events wait where they are.

A delivery is an execution like any other (attempts, retries with back-off, start under a release number, one fence),
of a hidden job that has the webhook's id. The job's row is deleted for its users from its first moment: no list, no
name and no quota knows it. Address and secrets are not in the job but read from the webhook when an attempt is handed
over (`handing.py`), so a change counts for what waits, too. What runs with the trigger `webhook` makes no events and no
dead letters; a delivery that used up its tries is found in the list of the webhook's deliveries.
"""
