"""Workflows: jobs that depend on jobs. A run of a workflow is an execution; its steps are executions of jobs."""
