"""What a person does about what each rule says, and what it means. Short: it is read at 3 a.m. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Runbook(NamedTuple):
    """What it means, and the steps in their order."""

    means: str
    steps: tuple[str, ...]


RUNBOOKS: dict[str, Runbook] = {
    "unread": Runbook(
        "A table or a column is missing, or has another shape: usually the code was updated and the database was not,"
        " or the other way round. The numbers are those of before, if there are any.",
        (
            "Bring the database up to date: `python manage.py tenant_migrate`.",
            "It is: look whether this web process still runs the version of before, and start it again.",
            "Neither: the log of the web process has the whole error.",
        ),
    ),
    "no_dispatcher": Runbook(
        "Nothing fires and nothing is handed to workers. What runs goes on; nothing is lost, but all is late.",
        (
            "Start a dispatcher: `python manage.py dispatcher`. It takes all slices within seconds.",
            "Look at the last words of the one that is gone: its log, and whether the machine killed it.",
            "It starts, and is gone again: `python manage.py doctor` says what it finds wrong.",
        ),
    ),
    "paused": Runbook(
        "Somebody stopped dispatch on purpose. Schedules fire into tickets, so nothing is lost; these wait.",
        ("Ask whoever paused it, or read the reason.", "Resume it. What waited is released fairly, not all at once."),
    ),
    "pool_paused": Runbook(
        "Somebody stopped a pool of all tenants on purpose. Its runs wait, and nothing is lost; other pools go on.",
        ("Ask whoever paused it, or read the reason.", "Resume it. What waited is released fairly, not all at once."),
    ),
    "tenant_paused": Runbook(
        "Somebody holds back tenants, or pools of theirs, on purpose. Their runs wait, and nothing is lost; all others"
        " go on.",
        (
            "*Audit* says who paused them, when and why: the actions `tenant.pause` and `dispatch.pause`.",
            "Resume them. What waited is released fairly, and counts as late then.",
        ),
    ),
    "unheld": Runbook(
        "What is due on these slices is not served. The others go on.",
        (
            "A dispatcher that lives takes a free slice within seconds: look whether one is draining or its"
            " clock is wrong.",
            "Release the lease, if its holder is stuck.",
            "Start another dispatcher: `python manage.py dispatcher`.",
        ),
    ),
    "dispatcher_lost": Runbook(
        "A dispatcher ended without giving up its leases. Others took them over when these ran out; there is"
        " less to fall"
        " back on now.",
        (
            "Nothing has to be done for what is due: it is served, as the evidence shows.",
            "Start another dispatcher in its place: `python manage.py dispatcher`. Its share moves to it by itself;"
            " *Rebalance* does it at once.",
            "Find out why it ended: its log, memory, and what else happened on that machine.",
        ),
    ),
    "no_worker": Runbook(
        "Runs are ready and nobody takes them.",
        (
            "Start workers: `celery -A workers.app worker`, or the container of your deployment.",
            "They are started and not seen: look at their log, the broker's address and the database's.",
        ),
    ),
    "stale_writes": Runbook(
        "A process that had lost what it held (it was frozen, or cut off) wrote late: a worker the end of an attempt,"
        " a dispatcher a fire. Each was refused because another had done it: the rows decide, so nothing counts twice.",
        ("Nothing has to be done.", "It goes on: look at that process's machine, it may freeze or swap."),
    ),
    "backlog_idle": Runbook(
        "Runs wait for nothing but a slot, and there are slots. The way between is broken.",
        (
            "Is the broker up? Messages travel through it: look at *Workers & queues*.",
            "Do the workers of this pool listen to the queues that wait? A word of an operator may keep them off.",
            "Its dispatcher may be stuck: release the lease of the pool, and another one hands over.",
            "Nothing is lost meanwhile: what was handed over and not started is handed over again.",
        ),
    ),
    "unserved": Runbook(
        "Tenants wait for a queue to which no live worker listens.",
        (
            "Start a worker of that pool and group, or let the present ones listen: *Subscriptions*.",
            "A tenant was moved to a group of workers that is not there: change it back on the tenant's page, or give"
            " the tenant another plan.",
        ),
    ),
    "one_tenant": Runbook(
        "One tenant makes up more than half of what waits. Fair share keeps the others going: look at their lateness.",
        (
            "The others are in time: leave it, it drains.",
            "The others are late: give the tenant a limit (*Change plan*), or pause its dispatch for a while."
            " Nothing of it"
            " is lost.",
            "Tell the tenant: a loop that submits runs, or a backfill without a rate, is the usual cause.",
        ),
    ),
    "retry_storm": Runbook(
        "More than half of all attempts fail. What is tried again takes slots from what would succeed.",
        (
            "One destination: see what fails most, below, and *Dead letters*. Breakers hold such calls back by"
            " themselves.",
            "All destinations: the network of the workers, or their name servers.",
            "When it is over, replay the dead letters of that cause as one group, with a rate.",
        ),
    ),
    "host_failing": Runbook(
        "Calls to one destination fail. Its runs are tried again later; where breakers are open they wait"
        " without using up"
        " tries.",
        (
            "Is the destination down for everybody? Its owner has to mend it; nothing is lost.",
            "It is mended: reset the breaker, else one call at a time looks whether it is.",
            "Replay what died meanwhile: *Dead letters*, the group of this cause.",
        ),
    ),
    "database_slow": Runbook(
        "Reading a few figures took too long. All else that asks the database waits, too.",
        (
            "Look at its load, locks and disks. `SELECT * FROM pg_stat_activity WHERE state <> 'idle'` shows who"
            " is at it.",
            "A long transaction (an export, a migration) holds back vacuum: end it.",
            "A replica behind only matters where something reads from it.",
        ),
    ),
    "clock_skew": Runbook(
        "A machine's clock differs from the database's. Leases use the database's clock, so nothing runs twice;"
        " beyond 5 s"
        " a dispatcher gives up its slices.",
        ("Set the clock: is NTP running there?", "Until then drain that process."),
    ),
    "late": Runbook(
        "Dispatchers are alive and do not keep up with what is due.",
        (
            "A burst drains within seconds to minutes: look at the backlog on Overview.",
            "It does not: start another dispatcher, and look whether the database is slow.",
            "It comes every day at this minute: *Forecast* shows it, and how much jitter would help.",
        ),
    ),
    "was_late": Runbook(
        "Runs were handed to workers later than the target of 10 s. What waits for a tenant's own limits counts, too:"
        " the evidence says how many of the late runs are of tenants whose limits held something back meanwhile.",
        (
            "All of them: nothing is wrong with the platform. *Tenants* shows who is at a limit; *why?* of a run says"
            " which one.",
            "The evidence names a resume by an operator: what had waited until then is late, and that ends by itself.",
            "Others are late, too: look at the picture of lateness on Overview: one peak is over, a plateau is not.",
            "All tenants: slots or dispatchers were too few, or the database was slow.",
        ),
    ),
    "at_capacity": Runbook(
        "All slots of a pool are busy. Each run waits for one to be free.",
        (
            "Start more workers of that pool; `python manage.py pool_wanted` says how many slots are wanted.",
            "One job holds most of them: give it a limit, or let it have a pool of its own.",
        ),
    ),
    "audit_alarm": Runbook(
        "The sealer found that its own row is not as it left it: somebody wrote to the trail around the application.",
        (
            "Verify the chains: *Audit*, or `python manage.py audit_verify`.",
            "Keep the database as it is for whoever looks into it.",
        ),
    ),
    "unsealed": Runbook(
        "Rows of the trail wait to be sealed. They are safe, but a change of one would not be found yet.",
        ("A dispatcher seals: is one alive, and is the key of SECRETS_KEYS there?",),
    ),
    "parked": Runbook(
        "These schedules can't be served: their trigger or time zone can't be computed any more.",
        ("Open the entries: each says why.", "Mended? *Serve again*: on one, or on those that are ticked in the list."),
    ),
    "slots_given_up": Runbook(
        "Periodic tasks of celery beat were sent several times and started by nobody.",
        ("Does a worker listen to the system queue?", "Run them once by hand: *Periodic tasks*, run now."),
    ),
    "other_schemas": Runbook(
        "Some tenants' schemas are older or newer than this version of the code.",
        ("Run `python manage.py tenant_migrate`. It says which ones stay behind, and why.",),
    ),
    "unmeasured": Runbook(
        "No dispatcher has measured pools and queues lately: the numbers of tiles and pictures are old.",
        ("The holder of the lease reconcile/0 measures: release that lease if it is stuck.",),
    ),
    "on_time": Runbook("What is due is served.", ()),
}
