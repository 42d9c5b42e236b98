"""Workflows: jobs that depend on jobs.

A workflow is a job of kind `workflow`, and a run of it is an execution. Its steps are rows; the execution of a step is
made in the transaction that settles the last of its parents (docs/decisions/0015-workflows.md).

- `definitions`: what a tenant wrote, checked and stored, and the graph of a version.
- `runs`: what happens to runs happens in a `turn`: rows are changed in memory until nothing follows any more, and
  written once. `advancing` makes one where steps end, `beginning` and `looking` where the dispatcher begins runs and
  looks at them; all under the lock of the run's root. `deciding` says what follows, `starting` makes executions.
- `interventions`: what persons do to runs.
- `views`: what runs look like.
- `dependencies`: executions that wait for others, outside any workflow.
"""
