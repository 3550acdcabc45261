"""Steps that narrow an access plan, one kind of knowledge each.

context     what the steps go by
result      what they found
steps       the steps, in order
key_step    a key index names rows
index_step  indexes of single files: distinct, bloom, text
"""
