"""Views: named queries over tables and other views, created in any order.

Only DataFusion knows which words of a query are names of tables: `b` can be a view, a column or part of a string. So
the words only give the order in which views are planned. A view that cannot be planned is left out, and a query that
uses it fails with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import datafusion

from needlepoint.errors import NeedlepointError, SqlError, UnknownName
from needlepoint.query.datafusion.errors import missing_table, translate
from needlepoint.query.sql.statements import without_comments_before
from needlepoint.query.sql.tokens import words

View = tuple[str, str]
MOST_VIEWS = 200
_SHOW = re.compile(r"SHOW\b", re.IGNORECASE)


def views_named(query: str, views: list[View]) -> list[View]:
    """The views that a query may use, directly or through other views; each after the views that it uses. A query that
    lists tables uses all, except those that no query can use.

    >>> views_named("SELECT * FROM b", [("b", "SELECT * FROM a"), ("c", "SELECT 1"), ("a", "SELECT 2")])
    [('a', 'SELECT 2'), ('b', 'SELECT * FROM a')]
    """
    known, said = dict(views), words(query)
    named, listing = known.keys() & said, _lists_tables(query, said)
    if not named and not listing:
        return []
    depths = _depths([name for name in known if name in named], known)
    if len(depths) > MOST_VIEWS:
        raise SqlError(f"the query uses {len(depths)} views, and the limit is {MOST_VIEWS}.")
    if listing:
        depths = {name: depth for name, depth in _depths(known, known).items() if depth <= MOST_VIEWS}
    return [(name, known[name]) for name in depths]


def _lists_tables(query: str, said: set[str]) -> bool:
    return "information_schema" in said or ("show" in said and _SHOW.match(without_comments_before(query)) is not None)


def _depths(tops: Iterable[str], known: Mapping[str, str]) -> dict[str, int]:
    """These views and all that they may use, each after those that it uses, with the length of the longest chain below.
    Not recursive, since a chain can be long."""
    found: dict[str, int] = {}
    begun: set[str] = set()
    for top in tops:
        waiting = [] if top in begun else [(top, _used(top, known))]
        begun.add(top)
        while waiting:
            name, used = waiting[-1]
            inner = next((each for each in used if each not in begun), None)
            if inner is None:
                found[name] = 1 + max((found.get(each, 0) for each in used), default=0)
                waiting.pop()
            else:
                begun.add(inner)
                waiting.append((inner, _used(inner, known)))
    return found


def _used(name: str, known: Mapping[str, str]) -> list[str]:
    return sorted(words(known[name]) & known.keys())


class ViewErrors:
    """The reasons why views cannot be planned, by name."""

    def __init__(self, tables: Callable[[], list[str]]) -> None:
        self._tables = tables
        self._failures: dict[str, tuple[str, str]] = {}

    def add(self, name: str, query: str, failure: str) -> None:
        self._failures[name] = query, failure

    def error(self, failure: Exception) -> NeedlepointError | None:
        """The reason, if a query failed because it uses, directly or through views, a view that cannot be planned."""
        chain: list[str] = []
        text = str(failure)
        while (name := missing_table(text)) in self._failures and name not in chain:
            assert name is not None
            chain.append(name)
            query, text = self._failures[name]
        if not chain:
            return None
        if name in chain:
            circle = sorted(chain[chain.index(name) :])
            several = f"views {', '.join(circle)} use each other"
            shown = several if len(circle) > 1 else f"view {name} uses itself"
            return SqlError(f"{shown}.", hint=f"Run `DROP VIEW {circle[0]}`, and create it over tables.")
        why = translate(text, query, self._tables())
        return BrokenView(chain[-1], why)


class BrokenView(SqlError):
    """A view that a query uses cannot be planned; `why` is the reason."""

    def __init__(self, name: str, why: NeedlepointError) -> None:
        self.name, self.why = name, why
        super().__init__(f"view '{name}' cannot be used: {why.message}", hint=why.hint)


def define(
    views: list[View],
    found: dict[str, datafusion.Table],
    plan: Callable[[str], datafusion.DataFrame],
    broken: ViewErrors,
) -> None:
    """Add the views to `found`. A view that uses another one waits until that is planned."""
    waiting, failures = views, dict[str, Exception]()
    while waiting:
        later: list[View] = []
        for name, query in waiting:
            try:
                found[name] = datafusion.Table(plan(query))
            except Exception as failure:
                if type(failure) not in (ValueError, Exception):
                    raise
                failures[name] = failure
                later.append((name, query))
        if len(later) == len(waiting):
            for name, query in later:
                broken.add(name, query, str(failures[name]))
            return
        waiting = later


def check_view(explain: Callable[[str], object], name: str, query: str) -> None:
    """Check before a view is created that its query can be planned, and does not use this view."""
    try:
        explain(query)
    except (BrokenView, UnknownName) as error:
        missing = error.why if isinstance(error, BrokenView) else error
        if isinstance(missing, UnknownName) and (missing.what, missing.name) == ("table", name):
            through = f", through view '{error.name}'" if isinstance(error, BrokenView) else ""
            raise SqlError(
                f"view '{name}' would use itself{through}.", hint="Write the query over tables or other views."
            ) from error
        raise
