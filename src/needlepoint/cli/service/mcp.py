"""`needle mcp`"""

from __future__ import annotations

import click

from needlepoint.cli.options import common_options, global_options
from needlepoint.errors import UsageError


@click.command("mcp", short_help="Let agents query the lake, over MCP on stdio.")
@click.option("--seconds", type=click.FloatRange(0), default=30.0, show_default=True, help="Most time of a query.")
@click.option("--rows", type=click.IntRange(1), default=200, show_default=True, help="Most rows of an answer.")
@common_options
def command(seconds: float, rows: int) -> None:
    """Let agents list, describe and query the tables of a lake, over the Model Context Protocol on stdio. They cannot
    change anything.

    \b
    Examples:
      needle mcp --lake lake
      claude mcp add lake -- needle mcp --lake /data/lake
    """
    try:
        from needlepoint.service import create_mcp_server
    except ImportError as error:
        raise UsageError(f"{error.name} is not installed.", hint="pip install 'needlepoint[mcp]'") from None
    import needlepoint

    chosen = global_options()
    with needlepoint.open(chosen.lake, read_only=True, store=chosen.store) as lake:
        create_mcp_server(lake, seconds=seconds, rows=rows).run("stdio")
