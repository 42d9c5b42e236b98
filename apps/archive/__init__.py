"""Old history of a tenant in Parquet files: written, read back, only then deleted from the tables, and brought back.

A **batch** is what was archived together: executions of one day with all that belongs to them, in a folder of its own
(`tables`). Its row in the tenant's schema is the catalogue: files without a row mean nothing, and whatever a process
left half done is found by its row and finished or thrown away by the next one (`archiving`).
"""
