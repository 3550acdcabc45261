"""`needle calibrate`"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path

import click

from needlepoint.cli.messages import say
from needlepoint.cli.options import common_options, open_lake


@click.command("calibrate", short_help="Measure what reads cost on this machine.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the costs to this file, for the setting `costs`, and not into the lake's store.",
)
@common_options
def command(output: Path | None) -> None:
    """Measure what reads cost on this machine, so that queries choose the fastest way to read a file.

    It takes about a second of one core, writes small files into a temporary directory, and reads them by page and by
    scan. The costs are kept in the lake's store and used by every process that opens the lake from now on, on a machine
    with the same processor and number of cores. Answers are the same with any costs.

    \b
    Examples:
      needle calibrate
      needle calibrate --output costs.json
    """
    started = time.monotonic()
    if output is not None:
        from needlepoint.lake import measure
        from needlepoint.query import Costs, as_json

        costs = as_json(measure())
        output.write_text(json.dumps(costs, indent=2) + "\n")
        _show(costs["local"], as_json(Costs())["local"])
        say(f"measured in {time.monotonic() - started:.1f} s; NEEDLE_COSTS={output} uses it")
        return
    with open_lake() as lake:
        found = lake.calibrate()
    _show(found.costs, found.usual)
    say(f"{found.machine}: measured in {time.monotonic() - started:.1f} s, kept in {found.path}")


def _show(costs: Mapping[str, float], usual: Mapping[str, float]) -> None:
    from needlepoint.cli.screen import grid, output

    console = output()
    table = grid(console, "cost", "here", "usual", right=("here", "usual"))
    for name, seconds in costs.items():
        table.add_row(name, _microseconds(seconds), _microseconds(usual[name]))
    console.print(table)


def _microseconds(seconds: float) -> str:
    """
    >>> _microseconds(0.000135), _microseconds(3.2e-09)
    ('135 µs', '0.0032 µs')
    """
    return f"{float(f'{seconds * 1e6:.3g}'):g} µs"
