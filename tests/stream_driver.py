"""A driver that streams JSON files into a lake and can be killed at any step: `stream_driver.py ROOT [STEP]`.

The kill ends the whole process group with Spark's JVM, as when the machine fails.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import needlepoint
from needlepoint import spark as needle_spark
from needlepoint.spark import stage
from needlepoint.tables import publishing

SCHEMA = "id bigint, title string, kind string"
FILES_A_BATCH = 3  # one of each kind


def start(session: Any, lake: needlepoint.Lake, root: Path, **options: Any) -> Any:
    """The stream that is killed, and that continues afterwards."""
    source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(f"file://{root}/in")
    chosen = {"partition_by": ["kind"], "available_now": True, "index": True, **options}
    return needle_spark.stream(source, lake, "feed", **chosen)


def steps(lake: needlepoint.Lake) -> dict[str, tuple[Any, str, int, bool]]:
    """Where to die: owner and name of a function, the number of the call, and whether after the call."""
    batches, queue, registry, indexer = lake.registry.batches, lake.queue, lake.registry, lake.indexer
    return {
        "files are staged": (stage, "_listed", 1, False),
        "before begin": (batches, "begin", 1, False),
        "after begin": (batches, "begin", 1, True),
        "between moves": (publishing, "move", 2, False),
        "after the moves": (batches, "commit", 1, False),
        "after commit": (batches, "commit", 1, True),
        "after the event": (queue, "put", 1, True),
        "after publish": (indexer, "catch_up", 1, False),
        "index entries without commit": (registry, "commit_artifacts", 1, False),
        "event received": (queue, "receive", 1, True),
        "indexed": (queue, "acknowledge", 1, True),
    }


def die_at(lake: needlepoint.Lake, owner: Any, name: str, call: int, after: bool) -> None:
    """Die in a batch that was never begun before: the driver first finishes what the previous one left."""
    original: Callable[..., Any] = getattr(owner, name)
    finished = lake.writer.finished
    calls = 0
    fresh = False

    def look(table: str, batch: str) -> Any:
        nonlocal fresh
        fresh = (found := finished(table, batch)) is None
        return found

    def dying(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += fresh
        if calls == call and not after:
            os.killpg(0, signal.SIGKILL)
        done = original(*arguments, **named)
        if calls == call:
            os.killpg(0, signal.SIGKILL)
        return done

    lake.writer.finished = look  # type: ignore[method-assign]
    setattr(owner, name, dying)


def main() -> None:
    root = Path(sys.argv[1])
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}  # for a short-lived JVM
    session = needle_spark.session("stream", cores=2, memory="1g", config=java)
    with needlepoint.open(root / "lake") as lake:
        if len(sys.argv) > 2:
            die_at(lake, *steps(lake)[sys.argv[2]])
        start(session, lake, root).awaitTermination()
    session.stop()


if __name__ == "__main__":
    main()
