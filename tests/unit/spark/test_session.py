from __future__ import annotations

import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.cases import long

from needlepoint.errors import SparkError
from needlepoint.spark.errors import startup_reason
from needlepoint.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_importing_the_modules_does_not_import_pyspark() -> None:
    names = ("errors", "java", "products", "session", "source", "stage")
    code = "; ".join(f"import needlepoint.spark.{name}" for name in names)
    subprocess.run([sys.executable, "-c", f"{code}; import sys; assert 'pyspark' not in sys.modules"], check=True)


def test_missing_pyspark_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkError, match=r"pip install 'needlepoint\[spark\]'"):
        session()


@pytest.mark.spark
def test_the_active_session_is_returned_in_any_thread(spark: SparkSession) -> None:
    assert session() is spark
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(session()))
    thread.start()
    thread.join()
    assert found[0].sparkContext is spark.sparkContext


@pytest.mark.spark
def test_settings(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.defaultParallelism == 2
    assert spark.sparkContext.uiWebUrl is None


FAILURES = [
    ({"memory": "1q"}, "Invalid maximum heap size: -Xmx1q"),
    *long(({"master": "nowhere://"}, "Master must either be yarn or start with")),
]


@pytest.mark.spark
@pytest.mark.parametrize(("arguments", "problem"), FAILURES)
def test_a_failed_start_is_one_line(arguments: dict[str, str], problem: str) -> None:
    code = f"from needlepoint.spark.session import session; session(**{arguments!r})"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.stdout == ""
    assert answer.stderr.splitlines()[-1].startswith(f"needlepoint.errors.SparkError: Spark did not start: {problem}")


def test_a_master_that_is_not_there_is_said_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        code = f"from needlepoint.spark.session import session; session(master='spark://127.0.0.1:{port}')"
        answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    problem = f"needlepoint.errors.SparkError: no Spark master answers at spark://127.0.0.1:{port}."
    assert answer.stderr.splitlines()[-1].startswith(problem)


def test_startup_reason_skips_what_every_start_prints() -> None:
    log = """WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
24/01/01 00:00:00 WARN Utils: Your hostname resolves to a loopback address
Exception in thread "main" java.lang.IllegalArgumentException: no such thing
	at org.apache.spark.Some.thing(Some.scala:1)
"""
    assert startup_reason(log) == "no such thing"
    assert startup_reason("") == ""
    assert startup_reason("Error occurred\nToo small heap\n") == "Error occurred; Too small heap"
