"""What the indexes of a table lack, and the tasks that build it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from needlepoint.errors import UsageError
from needlepoint.indexer.build import BuildTask, Failure, FileTask, capacity
from needlepoint.indexer.payloads import IndexTask
from needlepoint.indexer.pools import Pool
from needlepoint.indexes import kind, kind_options, run_format
from needlepoint.settings import Settings
from needlepoint.tables import ALL, File, Index, Table
from needlepoint.tables.registry import KnownFiles, Registry

# Below this many rows starting worker processes takes longer than the work.
ROWS_WORTH_PROCESSES = 2_000_000
# Tasks of files that need no entries: cards and payloads.
CARDS_PER_TASK = 64
FILES_PER_RUN = 4096
# Tasks in a pool take seconds: little is lost with one, and starting it costs next to nothing. Small tables have
# smaller tasks, so that every core has some.
ROWS_PER_TASK, FEWEST_ROWS_PER_TASK = 2_000_000, 100_000
BYTES_PER_TASK = 256 << 20
FILES_PER_TASK = 256
TASKS_PER_CORE = 3

_UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build of a table, and where.

    `paths` are those of the files that matter now; an index that has no file yet takes all it can get. `index` is the
    name of the only index to build. With `from_data` indexes that the files carry are not used for what is missing.
    A `pool` is for large work: its runs are merged. Without one, small work is done in this process.
    """

    paths: frozenset[str] | None = None
    index: str | None = None
    from_data: bool = False
    pool: Pool | None = None


@dataclass(frozen=True, slots=True)
class TaskLimits:
    """How much one task may have of each; a single file may have more."""

    rows: int
    files: int
    bytes: int = _UNLIMITED


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What the indexes of a table lack, as of one state of the registry.

    `files` ascend by id, so that the entries of a run ascend by location. `rows` are those of all files of the table,
    by id, as far as they are known. `unusable` says which indexes cannot be built here, and why.
    """

    table: Table
    indexes: tuple[Index, ...]
    lacking: tuple[File, ...]
    files: tuple[FileTask, ...]
    rows: Mapping[int, int]
    unusable: tuple[Failure, ...]

    @property
    def embeds(self) -> bool:
        """Whether some file will be written to."""
        embedded = frozenset(index.id for index in self.indexes if index.embed)
        return any(file.indexes & embedded for file in self.files)

    def index_tasks(self) -> tuple[IndexTask, ...]:
        """Of the indexes that lack a file, and of embedded payloads: embedding another one moves them."""
        lacking = frozenset[int]().union(*(file.indexes for file in self.files))
        tasks = index_tasks(self.table, self.indexes)
        return tuple(each for each in tasks if each.index_id in lacking or (each.embed and not each.keeps_entries))

    def entry_tasks(self) -> list[IndexTask]:
        return [each for each in self.index_tasks() if each.keeps_entries]

    def tasks(
        self, files: Sequence[FileTask], limits: TaskLimits, memory: int, *, to_merge: bool = False
    ) -> list[BuildTask]:
        indexes = self.index_tasks()
        return [BuildTask(some, indexes, memory, to_merge) for some in group(files, self.rows, limits)]

    def local_limits(self, settings: Settings) -> TaskLimits:
        """As many files as fill one run: fewer runs make faster lookups."""
        rows, keyed = self._most_rows(settings.index_memory)
        wanted = sum(self.rows.get(file.file_id, 0) for file in self.files)
        if wanted >= ROWS_WORTH_PROCESSES:
            rows = min(rows, -(-wanted // settings.processes))
        return TaskLimits(rows, FILES_PER_RUN if keyed else CARDS_PER_TASK)

    def is_small(self, tasks: Sequence[BuildTask]) -> bool:
        return len(tasks) <= 1 or sum(self.rows.values()) < ROWS_WORTH_PROCESSES

    def pool_limits(self, settings: Settings, files: Sequence[FileTask], cores: int) -> TaskLimits:
        """As many files as make a task worth its start, and some tasks for every core."""
        rows, _ = self._most_rows(settings.index_memory)
        wanted = sum(self.rows.get(file.file_id, 0) for file in files)
        return pool_limits(rows, wanted, cores)

    def _most_rows(self, memory: int) -> tuple[int, bool]:
        """How many rows fit into one run of each index, and whether there are runs at all."""
        keyed = self.entry_tasks()
        return min((capacity(memory, keyed, each) for each in keyed), default=_UNLIMITED), bool(keyed)


def pool_limits(most_rows: int, wanted: int, cores: int) -> TaskLimits:
    fair = max(FEWEST_ROWS_PER_TASK, wanted // (TASKS_PER_CORE * cores))
    return TaskLimits(min(most_rows, ROWS_PER_TASK, fair), FILES_PER_TASK, BYTES_PER_TASK)


def group(files: Sequence[FileTask], rows: Mapping[int, int], limits: TaskLimits) -> Iterator[tuple[FileTask, ...]]:
    """Neighbouring files together, up to the limits."""
    found: list[FileTask] = []
    held = held_bytes = 0
    for file in files:
        size = rows.get(file.file_id, 0)
        full = held + size > limits.rows or held_bytes + file.identity.size > limits.bytes
        if found and (full or len(found) >= limits.files):
            yield tuple(found)
            found, held, held_bytes = [], 0, 0
        found.append(file)
        held, held_bytes = held + size, held_bytes + file.identity.size
    if found:
        yield tuple(found)


def plan_build(
    registry: Registry, known: KnownFiles, name: str, request: BuildRequest, *, trust_embedded: bool
) -> BuildPlan:
    with registry.snapshot():
        # An index and the type of its keys belong together: a unit that becomes finer replaces the index.
        table = registry.tables.get(name)
        indexes, unusable = usable_indexes(table, registry.indexes.of(table))
        files = list(known.of(table).values())
    wanted = frozenset(index.id for index in indexes if request.index in (None, index.name))
    empty = wanted.difference(*(file.indexed for file in files))
    lacking = tuple(
        file
        for file in files
        if file.id is not None
        and (not file.has_card or not wanted <= file.indexed)
        and (request.paths is None or file.path in request.paths or empty)
    )
    tasks = file_tasks(registry, table, lacking, wanted, from_data=request.from_data, trust_embedded=trust_embedded)
    rows = {file.id: file.rows or 0 for file in files if file.id is not None}
    ordered = tuple(sorted(tasks, key=lambda file: file.file_id))
    return BuildPlan(table, tuple(indexes), lacking, ordered, rows, unusable)


def file_tasks(
    registry: Registry,
    table: Table,
    files: Sequence[File],
    wanted: frozenset[int],
    *,
    from_data: bool = False,
    trust_embedded: bool,
) -> list[FileTask]:
    """What each file lacks, and which payloads inside it are trusted: with `from_data` only those that are in use,
    which belong to indexes that lack nothing."""
    own = registry.payloads.embedded([file.id for file in files if file.id is not None], own=not from_data)
    trusted = frozenset({ALL}) if trust_embedded and not from_data else frozenset[str]()
    return [
        FileTask(
            file.id,
            f"{table.location}/{file.path}",
            file.identity,
            wanted - file.indexed,
            trusted | own.get(file.id, frozenset()),
        )
        for file in files
        if file.id is not None
    ]


def usable_indexes(table: Table, indexes: Sequence[Index]) -> tuple[list[Index], tuple[Failure, ...]]:
    """Without indexes of kinds that are not installed here, and of columns that a log removed; and the reasons."""
    found = {}
    for index in indexes:
        for column in index.columns:
            if column not in table.data_columns:
                why = f"index {index.name}: the table has no column '{column}' any more. DROP INDEX removes it."
                found[index.id] = Failure(table.location, why, index_id=index.id)
        try:
            kind(index.kind)
        except UsageError as error:
            found[index.id] = Failure(table.location, f"index {index.name}: {error}", index_id=index.id)
    return [index for index in indexes if index.id not in found], tuple(found.values())


def index_tasks(table: Table, indexes: Sequence[Index]) -> list[IndexTask]:
    return [
        IndexTask(
            i.id, i.kind, tuple(table.schema.field(name) for name in i.columns), kind_options(i), i.embed, run_format(i)
        )
        for i in indexes
    ]
