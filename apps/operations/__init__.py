"""Operations: one wish over many things, worked off in small chunks by any dispatcher, with a receipt for each item.

A wish is frozen when it is made: planning copies what its filter fits into items, batch by batch, and from then on the
items are the wish. Each chunk is one transaction: it takes pending items, carries each out through the service that a
single request uses, and writes what became of it. So a killed process has done a chunk or has not, several dispatchers
never do an item twice, and the counts always add up.

`loops` is the way in for dispatchers, `services` for people, `kinds` holds what can be done. Everything about one
operation happens under the locks of its row in the due index and of its own row, in this order, before any other.
"""
