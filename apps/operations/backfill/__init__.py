"""Backfill: past occurrences of a schedule as runs, once more or for the first time.

`within` says which occurrences a range has, `segments` which version of the schedule decides in its parts,
`recognising` what became of each, which `dispositions` reads. `wish` reads what somebody asks for, `outlook` and
`forecast` say what it would do, how long it takes and what it uses up, `starting` makes one run, `live` and `yielding`
hold back for live work, `progress` and `reading` tell how far it is. `kinds/backfill` ties them together.
"""
