"""A Spark session that is quiet, needs no installed Java, and leaves nothing in the working directory."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from needlepoint.errors import SparkError
from needlepoint.spark.errors import reason, startup_reason
from needlepoint.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession as SparkSession  # for rooms that do not import pyspark

_LOOPBACK = "127.0.0.1"
_MASTER_TIMEOUT = 10.0  # seconds


def session(
    app_name: str = "needlepoint",
    *,
    master: str | None = None,
    cores: int | None = None,
    memory: str = "2g",
    config: Mapping[str, str] | None = None,
    log: str | None = None,
) -> SparkSession:
    """The active Spark session, or a new one: local with `cores` cores unless `master` names a cluster.

    `config` overrides every setting made here. The output of the JVM goes to the file `log`; without one it is used
    only to explain a failed start. Under spark-submit the master and the network are the submitter's.
    """
    _quiet_pandas()
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise SparkError(
            f"Spark cannot be used: {missing}.", hint="Run `pip install 'needlepoint[spark]'`."
        ) from missing
    if SparkContext._active_spark_context is not None:
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    scratch = Path(tempfile.mkdtemp(prefix="needlepoint-spark-"))
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    where = "" if submitted else master or f"local[{cores or '*'}]"
    _check_master(where)
    settings = {"spark.app.name": app_name, **_settings(where, cores, memory, scratch), **(config or {})}
    return _start(settings, Path(log) if log else scratch / "spark.log")


def _check_master(master: str) -> None:
    """Fail early: Spark tries for a minute, and then says that its context was stopped."""
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            socket.create_connection((host, int(port)), _MASTER_TIMEOUT).close()
            return
    raise SparkError(f"no Spark master answers at {master}.", hint="Is it running, and its port open from here?")


def _settings(master: str, cores: int | None, memory: str, scratch: Path) -> dict[str, str]:
    """The settings of a session; a cluster's own settings for network and storage are not changed."""
    settings = {
        "spark.sql.session.timeZone": "UTC",
        # INT96, the alternative, has no statistics: no page of such a column could be skipped.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # It walks Python's stack at every call of a DataFrame.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
    }
    if master:
        settings |= {"spark.master": master, "spark.driver.memory": memory}
    if master.startswith("local"):
        settings |= {
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.host": _LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": str(max(4, 2 * (cores or os.cpu_count() or 1))),
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # Otherwise Derby writes its log into the working directory of the JVM.
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={scratch}",
        }
    return settings


def _start(settings: Mapping[str, str], log: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    _prepare_environment(settings.get("spark.master", ""))
    # PySpark logs every failed expression as a page of JSON; the exception says the same.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(settings.items()))
    try:
        gateway = None if SparkContext._gateway else _launch(conf, log)
        SparkContext(conf=conf, gateway=gateway)
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except Exception as failure:
        said = hint = ""
        if _did_not_launch(failure):
            said, hint = startup_reason(log.read_text(errors="replace")), f"JAVA_HOME is {os.environ['JAVA_HOME']}."
        raise SparkError(f"Spark did not start: {said or reason(failure)}.", hint=hint) from failure


def _prepare_environment(master: str) -> None:
    """Spark reads these only from the environment."""
    os.environ["JAVA_HOME"] = java_home()
    if master.startswith("local"):
        # Otherwise workers run whatever `python3` is first on the PATH.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = _LOOPBACK
    else:
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def _launch(conf: Any, log: Path) -> Any:
    """Start the JVM with its output in `log`: it prints warnings before loggers are configured."""
    from pyspark import java_gateway

    launch: Callable[..., Any] = java_gateway.launch_gateway
    with open(log, "wb") as file, _utf8_file_names():
        return launch(conf, popen_kwargs={"stdout": file, "stderr": file})


def _did_not_launch(failure: Exception) -> bool:
    return getattr(failure, "getCondition", lambda: None)() == "JAVA_GATEWAY_EXITED"


@contextlib.contextmanager
def _utf8_file_names() -> Iterator[None]:
    """Start the JVM in a UTF-8 locale.

    Java takes the encoding of file names from the locale. In the C locale Spark cannot write a partition
    whose value has a letter beyond ASCII.
    """
    locale = next((os.environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if os.environ.get(name)), "")
    if "utf-8" in locale.lower() or "utf8" in locale.lower():
        yield
        return
    before = os.environ.get("LC_ALL")
    os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        if before is None:
            del os.environ["LC_ALL"]
        else:
            os.environ["LC_ALL"] = before


def _quiet_pandas() -> None:
    """PySpark warns about pandas 3 on import and at every mapInArrow, where no pandas object is involved."""
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
