"""Executors run attempts. They know no database: works go in, results come out, and a fence tells them apart.

`base.py` fixes the words; `http.py` calls targets from one asyncio loop; `python.py` runs the operator's callables in
child processes; `container.py` has works run in containers, by one of three runtimes. Nothing is imported here, so that
a child process starts without the parent's libraries.
"""
