"""Building in a process of its own: a task on standard input, its artifact on standard output.

Not multiprocessing: its children import the caller's main module again, which runs a script without a main guard twice.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from needlepoint.errors import StoreError
from needlepoint.indexer.build import Artifact, Task, build


def build_in_process(task: Task, running: set[subprocess.Popen[bytes]]) -> Artifact:
    """`running` holds the process while it runs, for whoever wants to end it early."""
    # -P: no module of the working directory is imported. A session of its own: Ctrl-C reaches the caller, who decides.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", "from needlepoint.indexer.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    running.add(process)
    try:
        output, errors = process.communicate(pickle.dumps(task))
    finally:
        running.discard(process)
    if process.returncode != 0:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise StoreError(
            f"a process that builds indexes died: {last[0]}.",
            hint="What was finished is kept; sync again. Short of memory? Lower NEEDLE_INDEX_MEMORY or NEEDLE_WORKERS.",
        )
    artifact: Artifact = pickle.loads(output)
    return artifact


def main() -> None:
    # Libraries that print must not get in between.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    task: Task = pickle.loads(sys.stdin.buffer.read())
    with out:
        out.write(pickle.dumps(build(task)))
