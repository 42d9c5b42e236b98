"""Pages about what does the work: shards and dispatchers, workers and queues, operations, runs of workflows.

The `*_read` modules read shared tables in a few bounded statements; the pages beside them show what they found.
"""
