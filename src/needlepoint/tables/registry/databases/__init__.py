"""The databases that a registry can be in: SQLite, or PostgreSQL for many machines.

database         what the registry needs of one, and SQLite
postgres         PostgreSQL
transaction      what a change can do in either
moved            a registry that was moved to another place is closed
dialects         where their SQL differs
schema           how it is stored in SQLite, and upgrades of older formats
postgres_schema  the same in PostgreSQL
card_upgrade     cards of older formats move into packs
"""
