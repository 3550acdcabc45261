"""Results on the screen and in files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console

    from needlepoint.query import Result

FORMATS = ("table", "json", "ndjson", "csv", "arrow", "parquet")


def write(result: Result, format: str, stream: IO[bytes], rows: int) -> int:
    """Write all rows, in bounded memory, and return their number. A table has some of them."""
    from rich.console import Console

    from needlepoint.cli.screen import WIDTH_OF_A_FILE
    from needlepoint.printable import printable_lines
    from needlepoint.row_formats import ENCODERS

    if format == "table":
        text = io.StringIO()
        console = Console(file=text, width=WIDTH_OF_A_FILE, highlight=False, emoji=False, markup=False)
        total = show_table(result, rows, console)
        stream.write(text.getvalue().encode())
        return total
    written = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal written
        for batch in result.batches():
            written += batch.num_rows
            yield batch

    # CSV has no escapes: what a terminal cannot show is not the value any more. Files and pipes get it as it is.
    shown = format == "csv" and stream.isatty()
    for piece in ENCODERS[format](result.schema, batches()):
        stream.write(printable_lines(piece.decode()).encode() if shown else piece)
    return written


def show(result: Result, rows: int, elapsed: float) -> None:
    from needlepoint.cli.screen import duration, funnel, output

    console = output()
    show_table(result, rows, console)
    if console.is_terminal:
        console.print(duration(elapsed), style="dim", end="")
        console.print("".join(f"  {funnel(table)}" for table in result.report.tables), style="dim")


def show_table(result: Result, rows: int, console: Console) -> int:
    """Show the first rows, and return the number of all."""
    import pyarrow as pa

    from needlepoint.cli.screen_table import screen_table
    from needlepoint.printable import count

    first, total = list[pa.RecordBatch](), 0
    for batch in result.batches():
        if total < rows:
            first.append(batch.slice(0, rows - total))
        total += batch.num_rows
    if result.schema.names:
        console.print(screen_table(pa.Table.from_batches(first, result.schema), console))
    if total > rows:
        console.print(f"{rows:,} of {count(total, 'row')} shown; --rows shows more")
    else:
        console.print(count(total, "row"))
    return total
