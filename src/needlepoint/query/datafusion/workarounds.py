"""Bugs of DataFusion 55, and how each is avoided.

Each entry names the bug, the upstream issue if one is known, and where the workaround is. For each there is a test that
runs plain DataFusion and fails when a new version no longer has the bug: then the workaround can be removed
(tests/unit/query/datafusion/test_workarounds.py). Whole queries test that the workarounds work.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Workaround:
    """`cure` names an option of SessionOptions, or the module that avoids the bug."""

    name: str
    fault: str
    cure: str
    issue: str = "not reported"


WORKAROUNDS = (
    Workaround(
        "shared_names",
        "Filters are mapped by column name through joins whose inputs share a name, and land on the wrong side.",
        "a barrier in scan/table_provider.py for tables with such a name; SessionOptions.own_filters for any",
        "datafusion#25296",
    ),
    Workaround(
        "nan_statistics",
        "Statistics exclude NaN, SQL orders it above all numbers: `f > 1` loses NaN rows.",
        "SessionOptions.statistics, and nanvl(f, f) in scan/table_provider.py",
    ),
    Workaround(
        "coarse_units",
        "A cast to a finer unit moves to the literal and is truncated: `t < 1001 ns` becomes `t < 1 us`.",
        "greatest(t, t) in scan/table_provider.py",
    ),
    Workaround(
        "sorted_parts",
        "A key that is constant in each part of a union is dropped from ORDER BY with LIMIT; the parts share a filter.",
        "SessionOptions.sorted_parts, and an arm without rows in scan/table_provider.py",
    ),
    Workaround(
        "constant_groups",
        "count(DISTINCT p) of no rows is 1 where p is a literal.",
        "an arm without rows in scan/table_provider.py",
    ),
    Workaround(
        "outer_constants",
        "A column that is constant below an outer join is dropped from the keys of ORDER BY and windows above it.",
        "datafusion/final_sort.py; in windows and subqueries sql/rewriting/sort_keys.py and conditions.py",
    ),
    Workaround(
        "equal_subtotals",
        "Columns that are equal below ROLLUP or CUBE count as equal above them: keys of ORDER BY are dropped.",
        "datafusion/final_sort.py; for windows and subqueries sql/refusals.py",
    ),
    Workaround(
        "literal_first",
        "`4 = id AND id = 4` is FALSE, `id >= 4 AND id > 4` keeps 4, in ON or where a projection puts 4 first.",
        "sql/rewriting/constants_last.py, and partition values as a row to join with, in scan/table_provider.py",
    ),
    Workaround(
        "aggregate_filters",
        "min and max in one query filter by `k > NULL OR m > 7`, which is TRUE for no k.",
        "enable_aggregate_dynamic_filter_pushdown is off in datafusion/session.py",
    ),
    Workaround(
        "anti_joins_without_keys",
        "NOT IN ignores the NULLs of a subquery without extract_equijoin_predicate, which stacked filters need off.",
        "sql/refusals.py",
    ),
    Workaround(
        "keys_of_groups",
        "The keys of groups count as unique above a join and another GROUP BY: other keys of ORDER BY are dropped.",
        "SessionOptions.unique_keys",
    ),
    Workaround(
        "groups_of_groups",
        "For the same reason, keys of groups of such groups are dropped, and groups are lost.",
        "SessionOptions.fewer_keys",
    ),
    Workaround(
        "zero_lists",
        "Lists of four and more floats are compared by their bits: -0.0 is not in (0.0, 3, 4, 5).",
        "zeros of one sign in scan/table_provider.py",
    ),
    Workaround(
        "zero_bounds",
        "Conditions on one column are combined as if -0.0 were below 0.0: f <= -0.0 AND f < 0.0 is TRUE for zeros.",
        "sql/rewriting/zeros.py",
    ),
    Workaround(
        "zero_order",
        "ORDER BY f, id LIMIT 10 orders -0.0 before 0.0, but skips rows as if both were equal, and loses some.",
        "datafusion/final_sort.py; in subqueries zeros of one sign in scan/table_provider.py",
    ),
    Workaround(
        "zero_blooms",
        "The bloom filter of a file is probed with the bits of 0.0, and rules out row groups with -0.0.",
        "nanvl(f, f) in scan/table_provider.py",
    ),
    Workaround(
        "zero_keys",
        "A join takes -0.0 and 0.0 for equal, but not the filter that it makes of the keys of one side.",
        "SessionOptions.own_filters",
    ),
    Workaround(
        "nested_keys",
        "The filter that a join makes of the keys of one side loses rows where they are lists with NULLs.",
        "SessionOptions.own_filters",
    ),
    Workaround(
        "decimal_literals",
        "`amount = 8.64` over DECIMAL compares floats, and misses rows.",
        "sql/literals.py",
    ),
    Workaround(
        "sum_beside_distinct",
        "A sum beside count(DISTINCT) becomes a sum of sums, whose decimal is wider than the plan says.",
        "SessionOptions.regrouping, in the attempt after an internal failure",
    ),
    Workaround(
        "forgotten_equalities",
        "A window sorts by the other side of `a = b`; a join that projects one side away forgets why, and it fails.",
        "sql/rewriting/conditions.py, in the attempt after two internal failures",
    ),
    Workaround(
        "null_safe_keys",
        "A join by IS NOT DISTINCT FROM takes another equality above it for a key, for which NULL equals NULL too.",
        "sql/rewriting/null_safe.py",
    ),
    Workaround(
        "reused_names",
        "ORDER BY x LIMIT 2 of `upper(x) AS x` over DISTINCT x keeps the groups that are first by the x below.",
        "SessionOptions.top_groups",
    ),
    Workaround(
        "filtered_totals",
        "A condition on count(*) that is FALSE is applied to the rows that are counted: the count is 0, not absent.",
        "sql/rewriting/totals.py, SessionOptions.moves for HAVING",
    ),
    Workaround(
        "combined_lists",
        "Two IN lists of a column become one, as if no value were NULL: `x NOT IN (1) OR x NOT IN (2)` is TRUE.",
        "sql/rewriting/separate_lists.py",
    ),
    Workaround(
        "counted_literals",
        "Of a column that is a literal, count(DISTINCT x) is 1, also of no rows or NULL, and sum(x) of no rows is 0.",
        "sql/rewriting/distinct_counts.py",
    ),
    Workaround(
        "lossy_casts",
        "`CAST(d AS BIGINT) = 5` of a decimal becomes `d = 5.00`, which is not TRUE for 5.10.",
        "sql/rewriting/lossy_casts.py",
    ),
    Workaround(
        "wildcards",
        "`SELECT *` lacks a column that a subquery, a CTE or a view joins with USING from tables of the same names.",
        "sql/rewriting/wildcards.py",
    ),
    Workaround(
        "ignored_clauses",
        "WITH ROLLUP, TABLESAMPLE, CONNECT BY, PREWHERE, OVER (w ORDER BY …) and others are read and ignored.",
        "sql/rewriting/refused_clauses.py",
    ),
    Workaround(
        "multisets",
        "EXCEPT ALL and INTERSECT ALL become anti and semi joins, which do not count equal rows.",
        "sql/rewriting/refused_clauses.py",
    ),
    Workaround(
        "quantified",
        "`a < ANY (SELECT a FROM t)` over the same table compares a column with itself.",
        "sql/rewriting/refused_clauses.py",
    ),
    Workaround(
        "merged_columns",
        "The column x of RIGHT and FULL JOIN … USING (x) is that of the left side, which may be NULL.",
        "sql/rewriting/refused_clauses.py",
    ),
    Workaround(
        "zoneless_instants",
        "now() and TIMESTAMPTZ '…' have no zone: beside a column with one they are clock times there, hours away.",
        "sql/rewriting/instants.py",
    ),
    Workaround(
        "finer_times",
        "Times of two units are compared in the coarser: `ms = TIMESTAMP '… .0005'` is TRUE for .000.",
        "sql/rewriting/finer_times.py",
    ),
    Workaround(
        "missing_values",
        "A scalar subquery without rows counts as NOT NULL if its column does: (SELECT 1 FROM t WHERE FALSE) IS NULL.",
        "sql/rewriting/scalar_subqueries.py",
    ),
    Workaround(
        "listing_cache",
        "A directory is listed once, and new files are never seen.",
        "list_files_cache_limit is 0 in datafusion/session.py",
    ),
    Workaround(
        "distinct_from",
        "`a IS NOT DISTINCT FROM false AND k = 1` is parsed as `… FROM (false AND k = 1)`.",
        "sql/rewriting/null_safe.py",
    ),
)
