"""`text_match(text, query)` and `score(text, query)` as functions of SQL.

DataFusion passes only the arguments to a function. A score also needs the statistics of a whole table, which are set
before a query runs (see scoring.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import datafusion
import numpy as np
import pyarrow as pa

from needlepoint.errors import SqlError
from needlepoint.indexes.text import TextStatistics, bm25, evaluate, parse


@dataclass
class ScoreStatistics:
    """The statistics for scores, by query text."""

    statistics: Mapping[str, TextStatistics] = field(default_factory=dict)

    def of(self, query: str) -> TextStatistics:
        found = self.statistics.get(query)
        if found is None:
            raise unresolved_score(query)
        return found


def unresolved_score(query: str) -> SqlError:
    return SqlError(
        f"score(…, '{query}') cannot be resolved to a table here.",
        hint="Use score on a table column in SELECT, WHERE or ORDER BY, and put that in a subquery of FROM.",
    )


def register(context: datafusion.SessionContext, known: ScoreStatistics) -> None:
    def text_match(texts: pa.Array, queries: pa.Array) -> pa.Array:
        return _each(texts, queries, pa.bool_(), lambda query, some: evaluate(parse(query), some))

    def score(texts: pa.Array, queries: pa.Array) -> pa.Array:
        return _each(
            texts, queries, pa.float64(), lambda query, some: pa.array(bm25(parse(query), some, known.of(query)))
        )

    both = [pa.string(), pa.string()]
    context.register_udf(datafusion.udf(text_match, both, pa.bool_(), "immutable", "text_match"))
    context.register_udf(datafusion.udf(score, both, pa.float64(), "stable", "score"))


def _each(
    texts: pa.Array, queries: pa.Array, type: pa.DataType, evaluated: Callable[[str, pa.Array], pa.Array]
) -> pa.Array:
    """Evaluate each distinct query; usually there is one for all texts."""
    distinct = queries.unique().to_pylist()
    if len(distinct) == 1:
        return pa.nulls(len(texts), type) if distinct[0] is None else evaluated(distinct[0], texts)
    encoded = queries.dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    answers, places = [pa.nulls(int((numbers < 0).sum()), type)], [np.flatnonzero(numbers < 0)]
    for number, query in enumerate(encoded.dictionary.to_pylist()):
        places.append(np.flatnonzero(numbers == number))
        answers.append(evaluated(query, texts.take(pa.array(places[-1]))))
    order = np.argsort(np.concatenate(places), kind="stable")
    return pa.concat_arrays(answers).take(pa.array(order))
