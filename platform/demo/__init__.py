"""`make run`: everything on one machine, with two tenants and schedules that people really run.

`__main__` starts the services, migrates, seeds and then keeps the processes of `processes.py` running under the
`supervisor`. The receiver stands for the tenants' own servers. What it prints is also in `var/demo.json`.
"""
