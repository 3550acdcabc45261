"""A Spark job with s3a, run by test_s3a.py in its own process, since jars can only be given when a session starts."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import needlepoint
from needlepoint import spark as needle_spark


def config(jars: Path, endpoint: str) -> dict[str, str]:
    settings = {
        "endpoint": endpoint,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        # hadoop-aws 3.3.1 cannot parse the units in the defaults of Hadoop 3.5.
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "threads.keepalivetime": "60",
        "connection.establish.timeout": "5000",
        "connection.timeout": "200000",
        "multipart.purge.age": "86400",
    }
    names = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
    return {"spark.jars": names} | {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def main(root: str, store: str, jars: str) -> None:
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    session = needle_spark.session("s3a", cores=2, memory="1g", config=config(Path(jars), endpoint))
    said: dict[str, object] = {}
    with needlepoint.open(root, store=store, object_refresh=0) as lake:

        def frame(first: int):  # type: ignore[no-untyped-def]
            numbers = session.range(first, first + 1000, numPartitions=2)
            return numbers.selectExpr("id", "concat('title ', id) AS title", "id % 2 AS half")

        def write(first: int, batch: str, staging: str | None = "s3a") -> None:
            needle_spark.write(frame(first), lake, "item", batch=batch, partition_by=["half"], staging=staging)

        write(0, "one")
        lake.create_index("item", "id", build=False)
        lake.create_index("item", "title", kind="distinct", embed=True, build=False)
        write(1000, "two")  # embeds in the staged objects
        write(1000, "two")
        write(2000, "three", None)  # through a local directory, since everything runs on one machine
        said["problems"] = [each.problem for each in lake.follow_events(once=True)]
        found = lake.sql("SELECT title FROM item WHERE id = 1234")
        said["found"] = [found.rows(), found.report.tables[0].page_read_files]
        whole = needle_spark.read(session, lake, "item")
        said["native"] = "parquet" in whole._jdf.queryExecution().toString().lower()
        said["sum"] = [whole.count(), whole.selectExpr("sum(id)").first()[0]]
        some = needle_spark.read(session, lake, "item", "half = 1 AND id < 100 OR title = 'title 1500'", ["id"])
        said["some"] = sorted(row.id for row in some.collect())
        # An S3 other than the session's, with a bucket of the same name.
        from buckets import s3_server  # beside this script

        with s3_server() as other:
            other.client.create_bucket(Bucket=root.split("/")[2])
            os.environ["AWS_ENDPOINT_URL"] = other.url
            try:
                write(5000, "elsewhere")
            except needlepoint.NeedlepointError as error:
                said["elsewhere"] = str(error)
            os.environ["AWS_ENDPOINT_URL"] = endpoint
    session.stop()
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
