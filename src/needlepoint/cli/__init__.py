"""`needle`, the command line: one command a file, no logic beyond presenting.

needle          the command group: finds commands, turns errors into one line and an exit code
tables/         create-table, drop-table, ingest, status, inspect
indexes/        create-index, drop-index, index, store, sync, rebuild, indexer, verify, advise
query/          sql, explain
maintenance/    compact, delete, delete-files, drop-partition, expire, sweep, retrofit
service/        serve, token, mcp, share
demo/           demo
options         what every command takes, and the lake it opens
each_table      runs a command for one table or all
messages        lines on stdout and stderr
interrupts      what commands leave when they are interrupted
screen          tables, progress bars, and numbers with units
screen_table    rows as a table of text
batch_summary   what a batch added
confirm         asks before something is deleted
pandas_free     keeps pandas out of commands that do not use it
limits          warns of limits that would abort the process, limits what allocators keep
"""

from __future__ import annotations

from needlepoint.cli.needle import main, run

__all__ = ["main", "run"]
