"""Views: named queries over tables and other views, created in any order.

Only DataFusion knows which words of a query are names of tables: `b` can be a view, a column or part of a string. So
the words only give the order in which views are planned. A view that cannot be planned is left out, and a query that
uses it fails with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import datafusion

from needlepoint.errors import NeedlepointError, SqlError, UnknownName
from needlepoint.query.datafusion.errors import missing_table, translate

_WORDS = re.compile(r"\w+")

View = tuple[str, str]
MOST_VIEWS = 200
# A query with one of these may list all tables and views.
_LISTING = frozenset({"show", "information_schema"})


def words(text: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(text)}


def views_named(query: str, views: list[View]) -> list[View]:
    """The views that a query may use, directly or through other views; each after the views that it uses. A query that
    may list views uses all, except those that no query can use.

    >>> views_named("SELECT * FROM b", [("b", "SELECT * FROM a"), ("c", "SELECT 1"), ("a", "SELECT 2")])
    [('a', 'SELECT 2'), ('b', 'SELECT * FROM a')]
    """
    known, said = dict(views), words(query)
    listing = not said.isdisjoint(_LISTING)
    if known.keys().isdisjoint(said) and not listing:
        return []
    done: dict[str, str] = {}
    for name in known:
        if name in said:
            for each in _below(name, known):
                done.setdefault(each, known[each])
    if len(done) > MOST_VIEWS:
        raise SqlError(f"the query uses {len(done)} views, and the limit is {MOST_VIEWS}.")
    if listing:
        for name in (each for each in known if each not in done):
            below = list(_below(name, known))
            if len(below) <= MOST_VIEWS:
                done.update((each, known[each]) for each in below if each not in done)
    return list(done.items())


def _below(top: str, known: Mapping[str, str]) -> Iterator[str]:
    """A view after all views that it may use. Not recursive, since there can be many."""
    seen = {top}
    waiting = [(top, iter(sorted(words(known[top]) & known.keys())))]
    while waiting:
        name, rest = waiting[-1]
        inner = next((each for each in rest if each not in seen), None)
        if inner is None:
            yield name
            waiting.pop()
        else:
            seen.add(inner)
            waiting.append((inner, iter(sorted(words(known[inner]) & known.keys()))))


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
