"""The bloom index: filters for columns without them, and for several columns together.

kind  what it is, how it is built and searched
"""
