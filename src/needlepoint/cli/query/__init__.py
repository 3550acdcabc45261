"""Commands that take SQL, and what makes them fast.

sql              `needle sql`
explain          `needle explain`
query_argument   the QUERY argument of both
show             results on the screen and in files
shell            `needle sql` without a query
completion       names that the shell completes
calibrate        `needle calibrate`
"""
