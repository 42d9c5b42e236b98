"""Workflows: jobs that depend on jobs.

A workflow is a job of kind `workflow`, and a run of it is an execution. Its steps are rows; the execution of a step is
made in the transaction that settles the last of its parents. What decides is pure and stands apart: `reading` (what a
tenant wrote), `definition` (what is stored), `graph`, `deciding`, `inputs`, `critical`, `drawing`.

What happens to runs happens in a `turn`: rows are changed in memory until nothing follows any more, and written once.
`advancing` makes one where steps end, `beginning` and `looking` where the dispatcher begins runs and looks at them,
`verbs` where persons change them; all under the lock of the run's root. `starting` makes executions.
"""
