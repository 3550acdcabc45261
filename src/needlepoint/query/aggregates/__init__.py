"""Aggregates that indexes answer: files whose rows are known are not read, and the others are added.

facts        what bounds and partition values say of each file
known        the part of an aggregate that is known without reading
value_index  counts of distinct indexes, and entries of key indexes
pages        rows of pages that bounds decide
ordinals     between ordinals and Arrow
merge        puts known and read parts together, and runs what the query does with them
"""
