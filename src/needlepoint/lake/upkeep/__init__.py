"""What keeps the stores of a lake in order. Nothing is imported here: a lake imports the modules, and one opens lakes.

repair              verify a table, and repair what is damaged
garbage_collection  remove what nothing refers to any more
store_copy          move key indexes between stores
registry_move       move the registry between SQLite and PostgreSQL
"""
