"""Where something is that somebody only has a word or an id of.

Words are looked up among the pages, in the shared table of tenants, and, once a tenant is named, among its definitions.
An id tells neither its kind nor its tenant. The shared tables know it while it is alive or when somebody has done
something with it; of runs that have ended only their tenant's schema knows. An id holds the millisecond in which it was
made, and the figures of that minute hold which tenants had runs then: only those are looked into, a bounded number at
a time, on a connection of its own (`locating`).
"""
