"""Pruning steps: each narrows an access plan by one kind of statistics or index.

context     the input of the steps
result      their output
steps       the steps, in order
key_step    a key index names rows
index_step  indexes of single files: distinct, bloom, text
"""
