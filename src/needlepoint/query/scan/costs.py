"""What reads cost on a machine, in seconds of one core: the constants of the cost model.

    setting `costs`          a file that a person chose; it must be readable
    costs.json in the store  measured by `needle calibrate`, one entry for each kind of machine
    the defaults below       measured on one machine

A costs.json that is damaged, of another version or without this machine is ignored: costs change which way a file is
read, never what is found. It looks like this, and a setting's file like its inner part:

    {"version": 1, "machines": {"AMD EPYC, 2 cores, x86_64": {"local": {"file": 0.00013, "page": 3.1e-06, …}}}}
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from needlepoint.errors import UsageError
from needlepoint.objects import is_url
from needlepoint.parquet import PAGES_FOR_A_THREAD

COSTS_FILE = "costs.json"
VERSION = 1
# A store that many machines share, of many kinds, keeps those measured last.
MOST_MACHINES = 100
MOST_SECONDS = 1e300  # any finite number; an integer can have more digits than a float

try:
    THREADS = len(os.sched_getaffinity(0))
except AttributeError:  # not on every system
    THREADS = os.cpu_count() or 1

# How much of another core threads gain.
_GAIN = 0.7

# The codecs with costs of their own, by their numbers in parquet.thrift; LZ4 has two, and brotli is like gzip.
CODECS_BY_NUMBER = {1: "snappy", 2: "gzip", 4: "gzip", 5: "lz4", 6: "zstd", 7: "lz4"}

# Compressed bytes of an entry of a dictionary, roughly: it costs as much as a value.
ENTRY_BYTES = 16

ZSTD = 6
"""The codec where it is not known: that of our layout."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one core; bytes are compressed.

    Page reads    per file, request, page, byte and decoded value; a `text` takes so much more than a number.
                  `skimmed_byte`: of pages of which only some values are decoded. `key`: a lookup in a key index.
                  Codecs add to a page and to a byte. `joint_file`, `joint_zstd_page`: where pages of many files
                  are read and unpacked together.
    Native scans  per scan, file, page, byte and decoded value (`scan_cell`; a text takes `scan_text` more), and per
                  value of an IN (`scan_value`, and for each file `scan_list`). Codecs add to a byte: DataFusion has
                  other libraries for them than pyarrow. `plan`: what DataFusion takes for a query that can do without
                  it.
    Conditions    `like` and `match`: to evaluate LIKE and text_match on a text.
    """

    file: float = 135e-6
    request: float = 4.5e-6
    page: float = 3.2e-6
    byte: float = 0.05e-9
    value: float = 8e-9
    text: float = 18e-9
    skimmed_byte: float = 2.5e-9
    key: float = 6e-6
    joint_file: float = 45e-6
    joint_zstd_page: float = 2e-6
    zstd_page: float = 10e-6
    zstd_byte: float = 3.2e-9
    snappy_page: float = 1e-6
    snappy_byte: float = 2.1e-9
    lz4_page: float = 0.2e-6
    lz4_byte: float = 0.5e-9
    gzip_page: float = 2e-6
    gzip_byte: float = 7.3e-9
    plan: float = 1.1e-3
    scan: float = 0.1e-3
    scan_file: float = 300e-6
    scan_page: float = 1.2e-6
    scan_byte: float = 0.25e-9
    scan_cell: float = 7e-9
    scan_text: float = 7e-9
    scan_zstd_byte: float = 4.6e-9
    scan_snappy_byte: float = 1.3e-9
    scan_lz4_byte: float = 0.7e-9
    scan_gzip_byte: float = 8e-9
    scan_value: float = 5e-6
    scan_list: float = 0.55e-6
    like: float = 20e-9
    match: float = 280e-9

    def page_of(self, codec: int) -> float:
        """A page of this codec that is read alone."""
        return self.page + (getattr(self, f"{CODECS_BY_NUMBER[codec]}_page") if codec in CODECS_BY_NUMBER else 0.0)

    def joint_page_of(self, codec: int) -> float:
        """One of many pages of this codec that are unpacked together."""
        return self.page + self.joint_zstd_page if codec == ZSTD else self.page_of(codec)

    def byte_of(self, codec: int) -> float:
        """A byte of a page of this codec."""
        return self.byte + (getattr(self, f"{CODECS_BY_NUMBER[codec]}_byte") if codec in CODECS_BY_NUMBER else 0.0)

    def scan_byte_of(self, codec: int) -> float:
        """The same in a scan."""
        return self.scan_byte + (
            getattr(self, f"scan_{CODECS_BY_NUMBER[codec]}_byte") if codec in CODECS_BY_NUMBER else 0.0
        )

    def read_byte(self, codec: int) -> float:
        """A byte of a dictionary page, or of another one whose values are as small, with decoding."""
        return self.byte_of(codec) + (self.value + self.text) / ENTRY_BYTES

    def scanned_byte(self, codec: int) -> float:
        """The same in a scan."""
        return self.scan_byte_of(codec) + (self.scan_cell + self.scan_text) / ENTRY_BYTES

    def in_parallel(self, seconds: float, pages: int, parts: int = THREADS) -> float:
        """The time that reads of so many pages, of this sequential time, take in threads, which share decoding: so many
        parts of it, as the columns of files that are read together."""
        return shared(seconds, min(parts, pages // PAGES_FOR_A_THREAD))


def shared(seconds: float, parts: int) -> float:
    """The time of work that threads share, if it has so many parts.

    >>> shared(1.0, 1)
    1.0
    """
    return seconds / (1 + (max(1, min(THREADS, parts)) - 1) * _GAIN)


# An object store in the same region: 15 ms to the first byte, eight requests at a time, 80 MB/s each.
_REMOTE = {"file": 2e-3, "request": 4e-3, "byte": 15e-9, "scan": 20e-3, "scan_file": 15e-3, "scan_byte": 8e-9}


@dataclass(frozen=True, slots=True)
class MachineCosts:
    """The costs of local files, and of those in an object store, which has more latency and less throughput."""

    local: Costs
    remote: Costs
    is_measured: bool

    def of(self, location: str) -> Costs:
        return self.remote if is_url(location) else self.local


def costs_of(chosen: str, store: Path) -> MachineCosts:
    """The costs that a lake with this setting and this store goes by."""
    if chosen:
        return read_costs(chosen)
    kept = _measured(store / COSTS_FILE)
    found = kept.get(machine_name()) if kept else None
    return replace(measured_costs(Costs()), is_measured=False) if found is None else found


def measured_costs(local: Costs) -> MachineCosts:
    """The costs of a machine of which those of local files were measured."""
    return MachineCosts(local, replace(local, **_REMOTE), is_measured=True)


@functools.cache
def read_costs(path: str) -> MachineCosts:
    """The costs in a file that a person chose: `{"local": {…}, "remote": {…}}`. Missing ones have their defaults."""
    try:
        return _machine_costs(json.loads(Path(path).expanduser().read_text()))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(
            f"the costs in '{path}' cannot be read: {error}.",
            hint="`needle calibrate --output FILE` writes such a file.",
        ) from None


def keep_costs(store: Path, local: Costs) -> Path:
    """Put the costs of this machine into the store, beside those of others."""
    path = store / COSTS_FILE
    machines = {name: found for name, found in _measured(path).items() if name != machine_name()}
    kept = {name: as_json(found.local) for name, found in list(machines.items())[1 - MOST_MACHINES :]}
    text = json.dumps({"version": VERSION, "machines": {**kept, machine_name(): as_json(local)}}, indent=2)
    # In one step: another process may read it now. Of two that write at once, one measurement is lost.
    handle, temporary = tempfile.mkstemp(prefix=f".{COSTS_FILE}-", dir=store)
    try:
        with open(handle, "w") as file:
            file.write(text + "\n")
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    return path


def as_json(local: Costs) -> dict[str, dict[str, float]]:
    """As a file has them, with as many digits as are known."""
    return {"local": {name: float(f"{seconds:.3g}") for name, seconds in asdict(local).items()}}


def _measured(path: Path) -> dict[str, MachineCosts]:
    """The machines of a costs.json; none if it cannot be read, and without those that cannot."""
    found: dict[str, MachineCosts] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        held = json.loads(path.read_text())
        if isinstance(held, dict) and held.get("version") == VERSION and isinstance(held.get("machines"), dict):
            for name, given in held["machines"].items():
                with contextlib.suppress(ValueError):
                    found[name] = _machine_costs(given)
    return found


def _machine_costs(given: Any) -> MachineCosts:
    if not isinstance(given, dict) or not given or not given.keys() <= {"local", "remote"}:
        raise ValueError("its keys must be 'local' or 'remote'")
    for where, costs in given.items():
        _check(where, costs)
    local = replace(Costs(), **given.get("local", {}))
    return MachineCosts(local, replace(local, **{**_REMOTE, **given.get("remote", {})}), is_measured=True)


def _check(where: str, costs: Any) -> None:
    names = {each.name for each in fields(Costs)}
    if not isinstance(costs, Mapping) or not costs.keys() <= names:
        raise ValueError(f"'{where}' may only have {', '.join(sorted(names))}")
    for name, seconds in costs.items():
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 <= seconds <= MOST_SECONDS:
            raise ValueError(f"'{name}' of '{where}' is not a number of seconds")


@functools.cache
def machine_name() -> str:
    """The kind of machine: costs depend on the processor and how many cores of it a process has, not on the host's
    name, which is another one in each container."""
    model = platform.processor() or "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith(("model name", "hardware", "cpu model")):
                model = line.partition(":")[2].strip()
                break
    return f"{model}, {THREADS} core{'' if THREADS == 1 else 's'}, {platform.machine()}"
