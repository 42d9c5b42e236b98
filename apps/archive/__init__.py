"""What becomes of old history: what is held, what was erased, and what is kept in Parquet files.

A **batch** is what was archived together: executions of one day with all that belongs to them, in a folder of its own
(`tables`). Its row in the tenant's schema is the catalogue: files without a row mean nothing, and whatever a process
left half done is found by its row and finished or thrown away by the next one (`archiving`).
"""
