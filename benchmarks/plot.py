"""Draw figures of `make bench-peers` as an SVG, and print them as tables: `make bench-plot`.

    python benchmarks/plot.py figures.json docs/images/peers.svg

Each query is a line, each peer a dot on a logarithmic axis of milliseconds. Left is faster.
"""

from __future__ import annotations

import json
import math
import sys
from html import escape
from pathlib import Path

COLORS = {
    "needlepoint": "#c2410c",
    "get": "#f59e0b",
    "lance": "#1d4ed8",
    "datafusion": "#4d7c0f",
    "duckdb": "#6b7280",
    "polars": "#7e22ce",
}
NAMES = {"needlepoint": "Needlepoint, SQL", "get": "Needlepoint, get", "lance": "Lance", "datafusion": "DataFusion",
         "duckdb": "DuckDB", "polars": "Polars"}  # fmt: skip
COLUMNS = ("needlepoint", "get", "datafusion", "duckdb", "polars", "lance")
RATIOS = ("datafusion", "lance")
LAYOUTS = {
    "spark": "our layout",
    "snappy": "neutral layout: Snappy pages of 16 KiB",
    "pyarrow": "pyarrow's default layout",
}
WIDTH, LABELS, LINE, MARGIN = 900, 210, 24, 20
RIGHT = 40  # room for half of the last label


def drawing(figures: dict[str, dict[str, float]]) -> str:
    """An SVG of the figures: seconds by `layout: query` and peer."""
    seconds = [value for each in figures.values() for value in each.values()]
    low, high = math.floor(math.log10(min(seconds) * 1000)), math.ceil(math.log10(max(seconds) * 1000))

    def x(milliseconds: float) -> float:
        return LABELS + (math.log10(milliseconds) - low) / (high - low) * (WIDTH - LABELS - RIGHT)

    parts, y = _legend(), 56
    for layout, title in LAYOUTS.items():
        rows = {key.split(": ", 1)[1]: each for key, each in figures.items() if key.startswith(f"{layout}: ")}
        if not rows:
            continue
        parts.append(_text(MARGIN, y, title, weight="bold"))
        top, y = y + 8, y + 8
        for query, times in rows.items():
            y += LINE
            parts.append(_text(MARGIN, y + 4, query))
            parts.append(f'<line x1="{LABELS}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e5e7eb"/>')
            for name in sorted(times.keys() & COLORS.keys(), key=lambda name: name == "needlepoint"):
                size = 6 if name == "needlepoint" else 4.5
                taken = times[name] * 1000
                parts.append(
                    f'<circle cx="{x(taken):.1f}" cy="{y}" r="{size}" fill="{COLORS[name]}">'
                    f"<title>{escape(NAMES[name])}: {taken:.3g} ms</title></circle>"
                )
        for power in range(low, high + 1):
            parts.append(
                f'<line x1="{x(10**power):.1f}" y1="{top}" x2="{x(10**power):.1f}" y2="{y + 10}" stroke="#d1d5db" '
                'stroke-dasharray="2 3"/>'
            )
            parts.append(_text(x(10**power), y + 24, f"{10**power:g} ms", anchor="middle", color="#6b7280"))
        y += 56
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y - 16}" font-family="sans-serif" '
        f'font-size="13"><rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>\n'
    )


def tables(figures: dict[str, dict[str, float]]) -> str:
    """Tables in Markdown, one for each layout: milliseconds, and what Needlepoint takes of DataFusion and Lance."""
    lines = []
    for layout, title in LAYOUTS.items():
        rows = {key.split(": ", 1)[1]: each for key, each in figures.items() if key.startswith(f"{layout}: ")}
        peers = [name for name in COLUMNS if any(name in times for times in rows.values())]
        if rows:
            lines += [_line([title, *map(NAMES.__getitem__, peers), *(f"of {NAMES[name]}" for name in RATIOS)])]
            lines += [_line(["---"] * (1 + len(peers) + len(RATIOS)))]
        for query, times in rows.items():
            shown = [f"{times[name] * 1000:.3g}" if name in times else "" for name in peers]
            ratios = [f"{times['needlepoint'] / times[name]:.2g}" if name in times else "" for name in RATIOS]
            lines += [_line([query, *shown, *ratios])]
        lines += [""] if rows else []
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _legend() -> list[str]:
    parts, x = [], MARGIN
    for name, color in COLORS.items():
        parts += [f'<circle cx="{x + 5}" cy="20" r="5" fill="{color}"/>', _text(x + 15, 24, NAMES[name])]
        x += 34 + 7.4 * len(NAMES[name])
    return parts


def _text(x: float, y: float, text: str, weight: str = "normal", anchor: str = "start", color: str = "#111827") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
    )


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    figures = {key: each for key, each in json.loads(source.read_text()).items() if ": " in key}
    target.write_text(drawing(figures))
    print(tables(figures))


if __name__ == "__main__":
    main()
