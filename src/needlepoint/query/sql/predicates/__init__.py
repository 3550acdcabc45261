"""Conditions of DataFusion as predicates.

converter    what makes a condition TRUE, at most
preimages    values of a column for which a computed value is in a range
ranges       the same for single functions: arithmetic, casts, parts of times
text_bounds  what a prefix, or a text in one case, requires of a text
time_bounds  what a month, or another part of a time, requires of a time
truths       IS NOT TRUE, and the ELSE of a CASE
patterns     text pieces that LIKE and regular expressions require
"""
