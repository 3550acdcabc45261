"""Queries written differently, with the same meaning, where DataFusion answers the original incorrectly.

zeros              -0.0 in comparisons
constants_last     comparisons with the constant last
null_safe          IS NOT DISTINCT FROM
scalar_subqueries  scalar subqueries whose value may be missing
totals             count(*) of everything, which no condition passes
separate_lists     IN lists that are not combined
wildcards          * with the names of its tables
refused_clauses    refuses what DataFusion ignores or answers wrongly
distinct_counts    count(DISTINCT …) of constants
existence          SELECT EXISTS (…)
instants           now() and TIMESTAMPTZ with a zone
lossy_casts        casts of decimals that drop digits
finer_times        times with more digits than a column holds
conditions         conditions that DataFusion derives nothing from
sort_keys          keys of windows and subqueries that DataFusion does not drop
passes             the order of those that each query passes
operands           where the operands of comparisons, and subqueries, begin and end in a text
"""
