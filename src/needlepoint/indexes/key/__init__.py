"""The key index: value to rows.

kind     what it is and how entries are ordered
payload  the keys of one file as a payload
"""
