"""Completeness: each occurrence that a schedule had to account for ran, or a row says why not.

`expecting` says what had to be accounted for, from the versions of that time; `records` reads what is written of it;
`comparing` holds the one against the other; `checking` puts them together for a schedule; `mending` decides what
becomes of what is missing, and `repairing` does it.
"""
