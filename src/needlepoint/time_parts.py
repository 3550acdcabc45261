"""Parts of dates and timestamps that come again: the month, the day of the month and of the week, the hour.

A time is in one cell of such a part. Cells are numbered, and each has the value of the one a cycle before: months since
1970 are cells, twelve of them a cycle. So two bounds tell which values a part can have between them, if they are less
than a cycle apart.

>>> march, may = np.array([790, 19_800]), np.array([849, 19_880])
>>> march.astype("datetime64[D]").tolist()[0].isoformat(), may.astype("datetime64[D]").tolist()[0].isoformat()
('1972-03-01', '1972-04-29')
>>> absent("month", (5, 6), march, may, day=1).tolist()
[True, False]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

# The number of values of each part, and the least.
PARTS = {"month": (12, 1), "day": (31, 1), "dow": (7, 0), "hour": (24, 0), "minute": (60, 0), "second": (60, 0)}
_SECONDS = {"hour": 3_600, "minute": 60, "second": 1}
_DAY = 86_400
_THURSDAY = 4  # of 1970-01-01, from Sunday
# Engines have no calendar for days that are much farther from 1970.
_MOST_DAYS = 90_000_000
# More months than these are not looked at one by one, and more runs of them are not worth it.
_MOST_MONTHS, _MOST_RUNS = 2_400, 20

Int64Array = npt.NDArray[np.int64]


def absent(
    part: str, values: Sequence[int], low: Int64Array, high: Int64Array, day: int, slack: int = 0
) -> npt.NDArray[np.bool_]:
    """Where no time between `low` and `high` has one of these values in a part. A day has so many units of these times,
    and clocks are up to `slack` days away: then only parts of at least a day are known."""
    if part in _SECONDS:
        unit = day // _DAY * _SECONDS[part]
        first, last, far = low // unit, high // unit, np.full(len(low), bool(slack))
    else:
        days = low // day - slack, high // day + slack
        far = (days[0] < -_MOST_DAYS) | (days[1] > _MOST_DAYS)
        first, last = (_cells(part, np.clip(each, -_MOST_DAYS, _MOST_DAYS)) for each in days)
    cycle, least = PARTS[part]
    wanted = np.zeros(cycle, np.int64)
    wanted[[value - least for value in values]] = 1
    # The sum over each run of cells, which may begin in one cycle and end in the next.
    sums = np.concatenate(([0], np.cumsum(np.tile(wanted, 2))))
    start, count = first % cycle, np.clip(last - first + 1, 0, cycle)
    found: npt.NDArray[np.bool_] = (sums[start + count] == sums[start]) & ~far
    return found


def _cells(part: str, days: Int64Array) -> Int64Array:
    if part == "dow":
        return days + _THURSDAY
    months = days.astype("datetime64[D]").astype("datetime64[M]")
    if part == "month":
        return months.astype(np.int64)
    # Each month has 31 cells, some of them without a day.
    return months.astype(np.int64) * 31 + days - months.astype("datetime64[D]").astype(np.int64)


def spans_of_months(values: Sequence[int], low: int, high: int, day: int, slack: int = 0) -> list[tuple[int, int]]:
    """The times between two ends that are in these months; none if there are too many months, or far from 1970.

    >>> spans_of_months([3, 4, 12], 0, 729, day=1)
    [(59, 119), (334, 364), (424, 484), (699, 729)]
    """
    days = (low // day - slack, high // day + slack)
    if max(map(abs, days)) > _MOST_DAYS:
        return []
    first, last = _cells("month", np.array(days)).tolist()
    if not 0 <= last - first < _MOST_MONTHS:
        return []
    months = np.arange(first, last + 1)
    edges = np.flatnonzero(np.diff(np.isin(months % 12 + 1, list(values)), prepend=False, append=False)) + first
    starts = edges.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64).tolist()
    runs = [
        (max(low, (start - slack) * day), min(high, (stop + slack) * day - 1))
        for start, stop in zip(starts[::2], starts[1::2], strict=True)
    ]
    return [(start, stop) for start, stop in runs if start <= stop] if len(runs) <= _MOST_RUNS else []
