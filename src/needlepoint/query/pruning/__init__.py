"""Steps that narrow an access plan, one kind of knowledge each.

context     what the steps are asked, and where they report
steps       the steps, in order
key_step    a key index names rows
index_step  indexes of single files: distinct, bloom, text
"""
