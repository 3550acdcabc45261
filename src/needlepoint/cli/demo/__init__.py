"""`needle demo`.

demo         the command: it makes a lake, indexes it and queries it
comparison   the queries, and their times with the index and with a plain scan by DataFusion
"""
