"""Commands that take SQL.

sql              `needle sql`
explain          `needle explain`
query_argument   the QUERY argument of both
"""
