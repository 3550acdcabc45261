"""The distinct index: each value of a file and the pages that hold it.

kind     what it is
build    a column to values and pages
search   conditions select values, values have pages
payload  the values of one file
"""

from needlepoint.indexes.distinct.search import DistinctIndex

__all__ = ["DistinctIndex"]
