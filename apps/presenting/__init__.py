"""How things look, for operators and tenants alike: charts, timelines, states with icon and word, times, JSON.

Values in, text out: nothing here reads a table or asks a clock.
"""
