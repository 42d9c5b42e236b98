"""How the platform stands, made at most once a second for everybody who looks.

`gathering` reads what is known, from shared tables and in bounded reads; `verdict` says what it means; `drawing` makes
the parts of pages of it; `store` keeps it in one row, so that ten open pages cost one reading, in whatever processes.
"""
