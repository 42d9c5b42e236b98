"""Backfill: past occurrences of a schedule as runs, once more or for the first time.

`within` says which occurrences a range has, `recognising` what became of each, `dispositions` reads that, `wish` reads
what somebody asks for, `forecast` says how long it takes and what it uses up, `starting` makes one run, `yielding`
holds back for live work, `progress` tells how far it is. The kind that ties them together is `kinds/backfill`.
"""
