"""Counters and histograms for Prometheus, of each process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from needlepoint.lake import Lake
from needlepoint.query import Result
from needlepoint.service.worker import Worker

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    def __init__(self, lake: Lake, worker: Worker) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "needlepoint_request_seconds",
            "Time of requests, until the last byte is sent.",
            ("route", "status"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._rows = Counter("needlepoint_rows", "Rows in responses.", registry=self._registry)
        self._read = Counter("needlepoint_bytes_read", "Bytes of data files that were read.", registry=self._registry)
        self._skipped = Counter(
            "needlepoint_bytes_skipped", "Bytes of the tables of queries that were not read.", registry=self._registry
        )
        self._registry.register(_LakeMetrics(lake, worker))

    def request(self, route: str, status: int, seconds: float) -> None:
        self._seconds.labels(route, str(status)).observe(seconds)

    def result(self, result: Result, rows: int) -> None:
        """A result whose rows were sent."""
        found = result.bytes
        self._rows.inc(rows)
        self._read.inc(found.read)
        self._skipped.inc(max(0, found.there - found.read))

    def text(self) -> bytes:
        return generate_latest(self._registry)


def with_processes(texts: Mapping[str, str]) -> bytes:
    """The metrics of several processes, by their ids, as one text with the label `process`."""
    families: dict[str, Metric] = {}
    for process, text in texts.items():
        for family in text_string_to_metric_families(text):
            samples = [each._replace(labels={**each.labels, "process": process}) for each in family.samples]
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type)).samples += samples
    registry = CollectorRegistry()
    registry.register(_Families(list(families.values())))
    return generate_latest(registry)


class _Families(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class _LakeMetrics:
    """Read from the lake when they are asked for."""

    def __init__(self, lake: Lake, worker: Worker) -> None:
        self._lake = lake
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("needlepoint_queries", "Queries that run or wait.", self._worker.taken)
        yield GaugeMetricFamily("needlepoint_waiting_events", "Events that no indexer has handled.", self._waiting())
        for name in ("hits", "misses", "evictions"):
            family = CounterMetricFamily(f"needlepoint_cache_{name}", f"The {name} of a cache.", labels=["cache"])
            for cache in self._lake.caches():
                family.add_metric([cache.name], getattr(cache, name))
            yield family
        sizes = GaugeMetricFamily("needlepoint_cache_bytes", "The bytes in a cache.", labels=["cache"])
        for cache in self._lake.caches():
            sizes.add_metric([cache.name], cache.bytes)
        yield sizes

    def _waiting(self) -> int:
        return self._lake.queue.waiting()
