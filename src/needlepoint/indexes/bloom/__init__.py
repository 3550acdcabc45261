"""The bloom index: filters for columns without them, and for several columns together.

kind     what it is
build    columns to filters
search   conditions to row groups
payload  the filters of one file
"""
