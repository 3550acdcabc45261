"""The distinct index: each value of a file and the pages that hold it.

kind    what it is and how it is built
search  conditions pick values, values have pages
"""
