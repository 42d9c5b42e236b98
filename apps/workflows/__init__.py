"""Workflows: jobs that depend on jobs.

A workflow is a job of kind `workflow`, and a run of it is an execution. Its steps are rows; the execution of a step is
made in the transaction that settles the last of its parents. What decides is pure and stands apart: `reading` (what a
tenant wrote), `definition` (what is stored), `graph`, `deciding`, `inputs`, `critical`, `drawing`.
"""
