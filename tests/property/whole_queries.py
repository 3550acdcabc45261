"""Random whole queries over a lake of several tables: joins, subqueries, groups, windows, set operations, orders.

Two engines can only agree on an answer that is unique. A query with a LIMIT is ordered by every column of the answer.
If it is ordered by fewer, only these columns are compared, and the rows must be among those without the LIMIT.
Functions that depend on the order of equal rows order by unique numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.property.trees import DUCK, LAKE, NOTHING, Node, listed, node, word
from tests.property.whole_expressions import SORTED, Col, Maker
from tests.property.whole_lakes import DataTable, DataView, Field, LakeSpec


@dataclass(frozen=True)
class WholeQuery:
    """The tree is a selection and a tail: nothing, or ORDER BY columns of the answer, with or without a LIMIT."""

    tree: Node

    @property
    def lake(self) -> str:
        return self.tree.sql(LAKE)

    @property
    def duck(self) -> str:
        return self.tree.sql(DUCK)

    @property
    def keys(self) -> list[str]:
        """Columns that the answer is ordered by."""
        tail = self.tree.parts[-1]
        return [str(key.parts[0]) for key in tail.parts[0].parts] if tail.parts else []

    @property
    def unlimited(self) -> str:
        """The query without the tail, for DuckDB: every row that may be in the answer."""
        return replace(self.tree, parts=(*self.tree.parts[:-1], NOTHING)).sql(DUCK)


@dataclass(frozen=True)
class _Relation:
    source: Node
    columns: tuple[Col, ...]


@dataclass(frozen=True)
class _Selected:
    """A SELECT with the columns of its answer."""

    items: tuple[tuple[Node, str], ...]
    rest: Node
    columns: tuple[Col, ...]
    scope: tuple[Col, ...] = ()

    def tree(self, tail: Node = NOTHING) -> Node:
        shown = [node("item", f"{{}} AS c{at}", value) for at, (value, _) in enumerate(self.items)]
        return node("rows", "SELECT {} FROM {}{}", listed(shown), self.rest, tail)


class Queries:
    """A generator for one lake."""

    def __init__(self, chance: Random, spec: LakeSpec) -> None:
        self.chance = chance
        self.spec = spec
        self.make = Maker(chance)
        self.named: list[tuple[str, tuple[Col, ...]]] = []

    def query(self) -> WholeQuery:
        self.make = make = Maker(self.chance)
        make.subquery = self._subquery
        self.named = []
        common = self._common() if make.often(0.12) else NOTHING
        form = self.chance.random()
        if form < 0.03:
            relation = self._from()
            where = self._where(relation.columns)
            if " USING " in str(relation.source) or " NATURAL " in str(relation.source):
                # For DataFusion, the merged columns of an outer join are those of one side.
                return self._finished(common, self._selected(self._items(relation.columns), relation, where))
            return _query(common, node("rows", "SELECT * FROM {}{}", relation.source, where), NOTHING)
        if form < 0.07:
            return self._existence()
        if form < 0.15:
            return self._finished(common, self._narrowed())
        if form < 0.23:
            return self._set_operation(common)
        if form < 0.30:
            selected = self._counted()
        elif form < 0.43:
            selected = self._grouped()
        elif form < 0.50:
            selected = self._windows()
        else:
            selected = self._rows()
        return self._finished(common, selected)

    def view(self, name: str) -> DataView:
        """A view of the rows of a table or join, or of groups, with column names of its own."""
        self.make = Maker(self.chance, parameters=False)
        self.make.subquery = self._subquery
        self.named = []
        selected = self._rows() if self.make.often(0.7) else self._grouped()
        fields = tuple(Field(column.name, column.family, "") for column in selected.columns)
        return DataView(name, fields, selected.tree())

    # FROM

    def _alias(self) -> str:
        return f"t{next(self.make.numbers)}"

    def _relation(self, depth: int = 1) -> _Relation:
        form = self.chance.random()
        alias = self._alias()
        if self.named and form < 0.5:
            name, columns = self.chance.choice(self.named)
            return _Relation(word(f"{name} AS {alias}", "source"), _under(alias, columns))
        if self.spec.views and form < 0.1:
            view = self.chance.choice(self.spec.views)
            columns = tuple(Col(field.sql, field.family, field.name) for field in view.fields)
            return _Relation(word(f"{view.name} AS {alias}", "source"), _under(alias, columns))
        if depth and form < 0.17:
            inner = self._rows(0) if self.make.often(0.6) else self._grouped(0)
            tail = self._limit(inner) if self.make.often(0.2) else NOTHING
            return _Relation(node("source", f"({{}}) AS {alias}", inner.tree(tail)), _under(alias, inner.columns))
        return self._table(self.chance.choice(self.spec.tables), alias)

    def _table(self, table: DataTable, alias: str = "") -> _Relation:
        alias, fields = alias or self._alias(), [*table.fields, *table.partitions]
        columns = tuple(Col(each.sql, each.family, each.name, at == 0) for at, each in enumerate(fields))
        return _Relation(word(f"{table.name} AS {alias}", "source"), _under(alias, columns))

    def _from(self, depth: int = 1) -> _Relation:
        found = self._relation(depth)
        for _ in range(self.chance.choices((0, 1, 2), (3, 6, 2) if depth else (6, 3, 0))[0]):
            found = self._joined(found, self._relation(depth))
        return found

    def _joined(self, left: _Relation, right: _Relation) -> _Relation:
        kind = self.make.pick("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "RIGHT JOIN",
                              "FULL JOIN", "FULL JOIN", "CROSS JOIN", "SEMI", "ANTI")  # fmt: skip
        both = (*left.columns, *right.columns)
        if kind == "CROSS JOIN":
            only = [column for column in right.columns if column.unique]
            if only:
                return self._crossed(left, right, only[0])
            kind = "JOIN"
        if kind in ("SEMI", "ANTI"):
            text = (f"{{}} LEFT {kind} JOIN {{}} ON {{}}", f"{{}} {kind} JOIN {{}} ON {{}}")
            on = self._on(left, right)
            return _Relation(Node("source", (text[0], text[1], text[0]), (left.source, right.source, on)), left.columns)
        shared = self._shared(left, right)
        may_be_natural = kind in ("JOIN", "LEFT JOIN") and len(shared) == len({*_names(left)} & {*_names(right)}) > 0
        if may_be_natural and self.make.often(0.05):
            return _Relation(node("source", f"{{}} NATURAL {kind} {{}}", left.source, right.source), both)
        if shared and self.make.often(0.15):
            named = self.chance.sample(shared, self.chance.randint(1, min(2, len(shared))))
            names = listed([word(name) for name in named])
            return _Relation(node("source", f"{{}} {kind} {{}} USING ({{}})", left.source, right.source, names), both)
        source = node("source", f"{{}} {kind} {{}} ON {{}}", left.source, right.source, self._on(left, right))
        return _Relation(source, both)

    def _crossed(self, left: _Relation, right: _Relation, unique: Col) -> _Relation:
        """With one row of the other side; otherwise there would be too many rows."""
        alias = self._alias()
        source = node("source", f"{{}} CROSS JOIN (SELECT * FROM {{}} WHERE {{}} = {{}}) AS {alias}", left.source,
                      right.source, unique.node, self.make.literal("int"))  # fmt: skip
        inner = tuple(replace(each, sql=each.sql.partition(".")[2]) for each in right.columns)
        return _Relation(source, (*left.columns, *_under(alias, inner)))

    def _shared(self, left: _Relation, right: _Relation) -> list[str]:
        """Column names that both sides have, in the same family."""
        names = [column.name for column in left.columns]
        return [
            mine.sql.partition(".")[2]
            for mine in left.columns
            for other in right.columns
            if mine.name == other.name and mine.family == other.family in SORTED and names.count(mine.name) == 1
        ]

    def _on(self, left: _Relation, right: _Relation) -> Node:
        """Mostly an equality, often with more conditions on one side, the other or both."""
        pairs = [
            (mine, other)
            for mine in left.columns
            for other in right.columns
            if mine.family == other.family and mine.family in SORTED
        ]
        alike = [pair for pair in pairs if pair[0].name == pair[1].name] or pairs
        found: list[Node] = []
        if pairs and self.make.often(0.94):
            mine, other = self.chance.choice(alike if self.make.often(0.6) else pairs)
            operator = "=" if self.make.often(0.95) else "IS NOT DISTINCT FROM"
            found.append(node("bool", f"({{}} {operator} {{}})", mine.node, self._shifted(other)))
            if self.make.often(0.1):
                found.append(self.make.compared(mine.family, self.chance.choice((mine, other)).node, reverse=0.5))
            if self.make.often(0.15):
                mine, other = self.chance.choice(pairs)
                found.append(node("bool", f"{{}} {self.make.pick('=', '<', '>=', '<>')} {{}}", mine.node, other.node))
        plain = _without_subqueries(self.make)
        if not found or self.make.often(0.25):
            found.append(plain.condition(left.columns, 1))
        if self.make.often(0.25):
            found.append(plain.condition(right.columns, 1))
        if self.make.often(0.1):
            found.append(plain.condition((*left.columns, *right.columns), 1))
        return _all(found)

    # WHERE

    def _where(self, columns: Sequence[Col], share: float = 0.7) -> Node:
        if not self.make.often(share):
            return NOTHING
        found = [self.make.condition(columns) for _ in range(self.chance.choice((1, 1, 2)))]
        return node("clause", " WHERE {}", _all(found))

    def _subquery(self, outer: Sequence[Col]) -> Node:
        inner = self._relation(0)
        conditions = [self.make.leaf(inner.columns)] if self.make.often(0.6) else []
        pairs = [
            (mine, other)
            for mine in outer
            for other in inner.columns
            if mine.family == other.family and mine.family in SORTED
        ]
        form = self.make.pick("IN", "IN", "NOT IN", "EXISTS", "EXISTS", "NOT EXISTS", "scalar", "scalar")
        if not pairs:
            return self.make.leaf(outer)
        # Correlated forms: DataFusion refuses most others, or answers differently (NOT IN with a NULL on the left).
        share = {"IN": 0.1, "NOT IN": 0.0, "scalar": 0.6}.get(form, 0.93)
        if self.make.often(share):
            mine, other = self.chance.choice(pairs)
            conditions.append(node("bool", "{} = {}", self._shifted(other), mine.node))
            if "EXISTS" in form and self.make.often(0.2):
                mine, other = self.chance.choice(pairs)
                operator = self.make.pick("<", ">", "<>", "=")
                conditions.append(node("bool", f"{{}} {operator} {{}}", other.node, mine.node))
        where = node("clause", " WHERE {}", _all(conditions)) if conditions else NOTHING
        mine, other = self.chance.choice(pairs)
        if "EXISTS" in form:
            return node("bool", f"{form} (SELECT 1 FROM {{}}{{}})", inner.source, where)
        if form == "scalar":
            return self._scalar_compared(outer, inner, where)
        value = self._shifted(other)
        return node("bool", f"{{}} {form} (SELECT {{}} FROM {{}}{{}})", mine.node, value, inner.source, where)

    def _shifted(self, column: Col, share: float = 0.15) -> Node:
        """The column, sometimes with a number added, if it is a whole one."""
        if column.family != "int" or not self.make.often(share):
            return column.node
        return node("int", self.make.pick("({} + 1)", "({} - 1)", "(({} + 3) - 1)"), column.node)

    def _scalar_compared(self, outer: Sequence[Col], inner: _Relation, where: Node) -> Node:
        family = self.make.pick("int", "text", "dec", "date", "time", "instant", "real")
        mine = self.make.of(outer, family)
        value = self._aggregate(inner.columns, family)
        if mine is None or value is None:
            mine = self.make.of(outer, "int")
            value = word("count(*)", "int")
        if mine is None:
            return self.make.leaf(outer)
        operator = self.make.pick("=", "<", ">=", ">", "<>")
        more = ""
        if value.kind == "int" and self.make.often(0.3):
            if self.make.often(0.6):
                value = node("int", self.make.pick("{} + 1", "{} - 2"), value)
            else:
                more = " + 1"
        return node("bool", f"{{}} {operator} (SELECT {{}} FROM {{}}{{}}){more}", mine, value, inner.source, where)

    # SELECT

    def _items(self, columns: Sequence[Col], least: int = 1, most: int = 4) -> list[tuple[Node, str]]:
        found: list[tuple[Node, str]] = []
        for column in self.chance.sample(columns, min(len(columns), self.chance.randint(least, most))):
            value = column.node
            if self.make.often(0.12):
                value = self.make.dressed(column.family, value)
            elif column.family in ("int", "text", "date") and self.make.often(0.04):
                value = self.make.literal(column.family)
            found.append((value, column.family))
        return found

    def _rows(self, depth: int = 1) -> _Selected:
        relation = self._from(depth)
        items = self._items(relation.columns)
        if depth and self.make.often(0.06):
            items.append(self._scalar_item(relation.columns))
        distinct = word("DISTINCT ", "clause") if self.make.often(0.1) and _sortable(items) else NOTHING
        return self._selected(items, relation, self._where(relation.columns), distinct)

    def _scalar_item(self, outer: Sequence[Col]) -> tuple[Node, str]:
        inner = self._relation(0)
        pairs = [
            (mine, other)
            for mine in outer
            for other in inner.columns
            if mine.family == other.family and mine.family in SORTED
        ]
        conditions = [self.make.leaf(inner.columns)] if self.make.often(0.4) else []
        if pairs and self.make.often(0.7):
            mine, other = self.chance.choice(pairs)
            conditions.append(node("bool", "{} = {}", other.node, mine.node))
        where = node("clause", " WHERE {}", _all(conditions)) if conditions else NOTHING
        value = self._aggregate(inner.columns, "int") or word("count(*)", "int")
        return node("int", "(SELECT {} FROM {}{})", value, inner.source, where), "int"

    def _selected(
        self,
        items: list[tuple[Node, str]],
        relation: _Relation,
        tail: Node,
        distinct: Node = NOTHING,
        grouped: bool = False,
    ) -> _Selected:
        columns = tuple(Col(f"c{at}", family, f"c{at}") for at, (_, family) in enumerate(items))
        shown = (
            items if distinct == NOTHING else [(node("item", "{}{}", distinct, items[0][0]), items[0][1]), *items[1:]]
        )
        # Columns for ORDER BY besides those of the answer.
        scope = relation.columns if distinct == NOTHING and not grouped else ()
        return _Selected(tuple(shown), node("from", "{}{}", relation.source, tail), columns, scope)

    def _aggregate(self, columns: Sequence[Col], family: str) -> Node | None:
        """An aggregate whose value has this family."""
        if family == "int" and self.make.often(0.5):
            column = self.chance.choice([each for each in columns if each.family in SORTED] or list(columns))
            if column.family not in SORTED:
                return word("count(*)", "int")
            return node("int", self.make.pick("count(*)", "count({})", "count(DISTINCT {})"), column.node)
        value = self.make.of(columns, family)
        if value is None or family in ("real", "zero", "bool"):
            return None  # engines order NaN differently in min and max
        forms = ["min({})", "max({})"]
        forms += ["CAST(sum({}) AS BIGINT)", "CAST(sum(DISTINCT {}) AS BIGINT)"] if family == "int" else []
        forms += ["sum({})"] if family == "dec" else []
        return node(family, self.chance.choice(forms), value)

    def _grouped(self, depth: int = 1) -> _Selected:
        relation = self._from(depth)
        keys = [column for column in relation.columns if column.family in SORTED]
        chosen = self.chance.sample(keys, min(len(keys), self.chance.choice((0, 0, 1, 1, 1, 2))))
        items: list[tuple[Node, str]] = [(key.node, key.family) for key in chosen]
        for _ in range(self.chance.randint(1, 3)):
            family = self.make.pick("int", "int", "int", "text", "dec", "date", "time", "instant")
            value = self._aggregate(relation.columns, family)
            if value is not None and family == "int" and self.make.often(0.1):
                condition = _without_subqueries(self.make).condition(relation.columns, 1)
                value = node("int", "count(*) FILTER (WHERE {})", condition)
            items.append((value, family) if value is not None else (word("count(*)", "int"), "int"))
        where = self._where(relation.columns, 0.5)
        group = NOTHING
        if chosen:
            form = "GROUP BY ROLLUP ({})" if self.make.often(0.04) else "GROUP BY {}"
            group = node("clause", f" {form}", listed([key.node for key in chosen]))
        having = NOTHING
        if chosen and self.make.often(0.3):
            form = self.make.pick("count(*) > 1", "count(*) = 2", "min({}) > 1", "max({}) <= 3", "count({}) > 1",
                                  "sum({}) > 4.5")  # fmt: skip
            families = ("int", "dec") if "sum" in form else ("int",)
            whole = [column for column in relation.columns if column.family in families]
            if whole or "{}" not in form:
                inner = (self.chance.choice(whole).node,) if "{}" in form else ()
                having = node("clause", " HAVING {}", node("bool", form, *inner))
        return self._selected(items, relation, node("tail", "{}{}{}", where, group, having), grouped=True)

    def _counted(self) -> _Selected:
        """Counts, least and greatest values and groups of one table, with conditions that indexes and bounds decide for
        some files."""
        relation = self._table(self.chance.choice(self.spec.tables))
        columns = [column for column in relation.columns if column.family in SORTED]
        keys = self.chance.sample(columns, min(len(columns), self.chance.choice((0, 0, 1, 1, 2))))
        items: list[tuple[Node, str]] = [(key.node, key.family) for key in keys]
        for _ in range(self.chance.choice((0, 1, 1, 2, 3)) if keys else self.chance.choice((1, 1, 2, 3))):
            column = self.chance.choice(columns)
            form = self.make.pick("count(*)", "count(*)", "count({})", "min({})", "max({})")
            if column.family in ("bool", "real") and form[0] == "m":
                form = "count({})"  # engines order NaN differently in min and max
            inner = (column.node,) if "{}" in form else ()
            items.append((node("item", form, *inner), column.family if form[0] == "m" else "int"))
        found = [self._plain_condition(columns) for _ in range(self.chance.choice((0, 1, 1, 1, 2)))]
        where = node("clause", " WHERE {}", _all(found)) if found else NOTHING
        group = node("clause", " GROUP BY {}", listed([key.node for key in keys])) if keys else NOTHING
        having = word(self.make.pick(" HAVING count(*) > 1", " HAVING count(*) <> 2"), "clause")
        having = having if keys and self.make.often(0.15) else NOTHING
        return self._selected(items, relation, node("tail", "{}{}{}", where, group, having), grouped=True)

    def _narrowed(self) -> _Selected:
        """Rows of one table under a condition that narrows it by an index: keys of another table with a number added,
        or a computed value."""
        tables = {table.name: table for table in self.spec.tables}
        indexed = [(index.table, index.column) for index in self.spec.indexes]
        table, key = self.chance.choice(indexed) if indexed else (self.chance.choice([*tables]), "")
        relation = self._table(tables[table])
        mine = next((each for each in relation.columns if each.name == key), relation.columns[0])
        # A table that is named twice is not narrowed.
        others = [each for name, each in tables.items() if name != table]
        found = [self._narrowing(mine, self._table(self.chance.choice(others)) if others else self._relation(0))]
        if self.make.often(0.3):
            found.append(self._plain_condition([each for each in relation.columns if each.family in SORTED]))
        where = node("clause", " WHERE {}", _all(found))
        return self._selected(self._items(relation.columns), relation, where)

    def _narrowing(self, mine: Col, inner: _Relation) -> Node:
        others = [column for column in inner.columns if column.family == "int"]
        if mine.family != "int" or not others or self.make.often(0.2):
            return self.make.special(mine) or self._plain_condition([mine])
        other = self._shifted(self.chance.choice(others), 0.7)
        plain = [self._plain_condition(others)] if self.make.often(0.5) else []
        form = self.make.pick("IN", "IN", "EXISTS", "scalar", "scalar", "sum")
        if form == "EXISTS":
            where = _all([node("bool", "{} = {}", other, mine.node), *plain])
            return node("bool", "EXISTS (SELECT 1 FROM {} WHERE {})", inner.source, where)
        where = node("clause", " WHERE {}", _all(plain)) if plain else NOTHING
        if form == "IN":
            return node("bool", "{} IN (SELECT {} FROM {}{})", mine.node, other, inner.source, where)
        operator, extreme = self.make.pick("=", "=", "<", "<=", ">", ">="), self.make.pick("min", "max")
        before, after = self.make.pick((" + 1", ""), ("", " - 1")) if form == "sum" else ("", "")
        text = f"{{}} {operator} (SELECT {extreme}({{}}){before} FROM {{}}{{}}){after}"
        return node("bool", text, mine.node, other, inner.source, where)

    def _existence(self) -> WholeQuery:
        """Whether rows exist, and rows of a LIMIT of which no column counts."""
        relation = self._relation(0) if self.make.often(0.8) else self._from(0)
        columns = [column for column in relation.columns if column.family in SORTED] or list(relation.columns)
        found = [self._plain_condition(columns) for _ in range(self.chance.choice((0, 1, 1, 2)))]
        if self.make.often(0.2):
            found.append(self.make.condition(relation.columns, 1))
        where = node("clause", " WHERE {}", _all(found)) if found else NOTHING
        form, wanted = self.chance.random(), self._rows_wanted()
        if form < 0.5:
            negated, sign = self.make.pick(("", ">"), ("", ">"), ("NOT ", "="))
            item, some = self.chance.choice(columns).node, wanted if self.make.often(0.2) else NOTHING
            asked = f"SELECT {negated}EXISTS (SELECT {{}} FROM {{}}{{}}{{}}) AS c0"
            plain = f"SELECT count(*) {sign} 0 AS c0 FROM (SELECT {{}} FROM {{}}{{}}{{}})"
            rows = Node("rows", (asked, asked, plain), (item, relation.source, where, some))
        elif form < 0.8:
            rows = node("rows", "SELECT 1 AS c0, 'x' AS c1 FROM {}{}{}", relation.source, where, wanted)
        else:
            item = self.chance.choice(columns).node
            form = "SELECT count(*) AS c0 FROM (SELECT {} AS x FROM {}{}{}) AS y"
            rows = node("rows", form, item, relation.source, where, wanted)
        return _query(NOTHING, rows, NOTHING)

    def _plain_condition(self, columns: Sequence[Col]) -> Node:
        """A column compared with a value, or an OR of two such conditions."""
        if self.make.often(0.2):
            return node("bool", "({} OR {})", self._plain_condition(columns), self._plain_condition(columns))
        column = self.chance.choice(columns)
        if self.make.often(0.15):
            return node("bool", self.make.pick("{} IS NULL", "{} IS NOT NULL"), column.node)
        if column.family == "bool":
            return node("bool", "{}", column.node)
        if self.make.often(0.2):
            items = [self.make.literal(column.family) for _ in range(self.chance.choice((1, 2, 5)))]
            return node("bool", "{} IN ({})", column.node, listed(items))
        operator = self.make.pick("=", "=", "<>", "<", "<=", ">", ">=")
        return node("bool", f"{{}} {operator} {{}}", column.node, self.make.literal(column.family))

    def _windows(self) -> _Selected:
        relation = self._from()
        sortable = [column for column in relation.columns if column.family in SORTED]
        unique = [column for column in relation.columns if column.unique]
        items = self._items(relation.columns, 1, 2)
        # Without the unique number of every table in the FROM, equal rows have no order.
        tables = str(relation.source).count(" AS t")
        whole = len(unique) == tables and "SELECT" not in str(relation.source) and "JOIN" not in str(relation.source)
        for _ in range(self.chance.choice((1, 1, 2))):
            items.append(self._window(sortable, unique if whole else []))
        return self._selected(items, relation, self._where(relation.columns, 0.5))

    def _window(self, sortable: Sequence[Col], unique: Sequence[Col]) -> tuple[Node, str]:
        forms = ["rank()", "dense_rank()", "count(*)", "count({})", "CAST(sum({}) AS BIGINT)", "min({})", "max({})"]
        forms += (
            ["row_number()", "lag({})", "lead({})", "first_value({})", "last_value({})", "ntile(3)"] if unique else []
        )
        form = self.chance.choice(forms)
        numbers = [column for column in sortable if column.family == "int"] or [Col("1", "int", "1")]
        ordered = self.chance.sample(sortable, min(len(sortable), self.chance.randint(0, 2)))
        keys = [self._key(column.node) for column in (*ordered, *unique)]
        if not keys:
            keys = [self._key(numbers[0].node)] if numbers[0].sql != "1" else []
        order = node("clause", "ORDER BY {}", listed(keys, kind="keys")) if keys else NOTHING
        parted = self.chance.sample(sortable, min(len(sortable), self.chance.choice((0, 1, 1))))
        partition = NOTHING
        if parted:
            partition = node("clause", "PARTITION BY {} ", listed([column.node for column in parted]))
        frame = ""
        if unique and "{}" in form and "lag" not in form and "lead" not in form and self.make.often(0.3):
            frame = " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING"
        if not keys and form in ("rank()", "dense_rank()"):
            form = "count(*)"
        over = node("word", f"{{}}{{}}{frame}", partition, order)
        if "CAST" in form:
            number = self.chance.choice(numbers).node
            return node("int", "CAST(sum({}) OVER ({}) AS BIGINT)", number, over), "int"
        inner = (self.chance.choice(numbers).node,) if "{}" in form else ()
        return node("int", f"{form} OVER ({{}})", *inner, over), "int"

    # ORDER BY, LIMIT, set operations, WITH

    def _key(self, value: Node) -> Node:
        return node("key", f"{{}} {self.make.pick('ASC', 'DESC')} NULLS {self.make.pick('FIRST', 'LAST')}", value)

    def _limit(self, selected: _Selected) -> Node:
        """The first rows, ordered by all columns of the answer and sometimes by one that is not in it."""
        if not _sortable(selected.items):
            return NOTHING
        keys = [self._key(column.node) for column in self.chance.sample(selected.columns, len(selected.columns))]
        others = [each for each in selected.scope if each.family in SORTED and not each.name.startswith("c")]
        if others and self.make.often(0.3):
            parts = [column for column in others if column.name[0] in "pq"] or others
            keys.insert(self.chance.choice((0, 0, 1)), self._key(self.chance.choice(parts).node))
        return node("clause", " ORDER BY {}{}", listed(keys, kind="keys"), self._rows_wanted())

    def _rows_wanted(self) -> Node:
        limit = word(f" LIMIT {self.chance.choice((0, 1, 2, 3, 5, 21))}", "clause")
        offset = word(f" OFFSET {self.chance.choice((0, 1, 2, 5))}", "clause") if self.make.often(0.25) else NOTHING
        return node("clause", "{}{}", limit, offset)

    def _finished(self, common: Node, selected: _Selected) -> WholeQuery:
        rows = selected.tree()
        if not self.make.often(0.45) or not _sortable(selected.items):
            return _query(common, rows, NOTHING)
        form = self.chance.random()
        if form < 0.55:
            return _query(common, rows, self._limit(selected))
        chosen = selected.columns
        if form < 0.85 and "DISTINCT " not in str(selected.items[0][0]):
            chosen = chosen[: self.chance.randint(1, len(chosen))]
        keys = listed([self._key(column.node) for column in chosen])
        return _query(common, rows, node("clause", " ORDER BY {}{}", keys, self._rows_wanted()))

    def _set_operation(self, common: Node) -> WholeQuery:
        """A set operation over two selections with the same families."""
        first = self._from(1)
        second = self._from(1)
        families = [column.family for column in first.columns if column.family in SORTED]
        wanted = [
            family
            for family in self.chance.sample(families, min(len(families), self.chance.randint(1, 3)))
            if any(column.family == family for column in second.columns)
        ]
        if not wanted:
            return self._finished(common, self._rows())
        sides = []
        for relation in (first, second):
            items = [(self.make.of(relation.columns, family) or word("NULL"), family) for family in wanted]
            sides.append(self._selected(items, relation, self._where(relation.columns)))
        operator = self.make.pick("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT")
        tree = node("rows", f"{{}} {operator} {{}}", sides[0].tree(), sides[1].tree())
        tail = self._limit(replace(sides[0], scope=())) if self.make.often(0.4) else NOTHING
        return _query(common, tree, tail)

    def _common(self) -> Node:
        inner = self._rows(0) if self.make.often(0.6) else self._grouped(0)
        self.named.append(("w", inner.columns))
        return node("clause", "WITH w AS ({}) ", inner.tree())


def _without_subqueries(make: Maker) -> Maker:
    """A maker of conditions without subqueries."""
    return Maker(make.chance, make.numbers, make.parameters)


def _query(common: Node, rows: Node, tail: Node) -> WholeQuery:
    return WholeQuery(node("query", "{}{}{}", common, rows, tail))


def _names(relation: _Relation) -> list[str]:
    return [column.name for column in relation.columns]


def _under(alias: str, columns: Sequence[Col]) -> tuple[Col, ...]:
    return tuple(replace(column, sql=f"{alias}.{column.sql}") for column in columns)


def _all(conditions: Sequence[Node]) -> Node:
    return listed(conditions, " AND ")


def _sortable(items: Sequence[tuple[Node, str]]) -> bool:
    return all(family in SORTED for _, family in items)
