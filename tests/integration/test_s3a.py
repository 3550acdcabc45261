"""Spark stages in the bucket through s3a, and reads whole tables through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.buckets import ACCESS_KEY, SECRET_KEY, aws_server

import needlepoint

JOB = Path(__file__).parents[1] / "s3a_job.py"
JARS = os.environ.get("NEEDLE_TEST_S3A_JARS", "")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not JARS, reason="NEEDLE_TEST_S3A_JARS names no directory with hadoop-aws; run `make test-s3a`"),
]


def test_batches_are_staged_in_the_bucket_and_copied_there(tmp_path: Path) -> None:
    with aws_server() as server:
        bucket = server.bucket()
        root, store = bucket.url("lake"), str(tmp_path / "store")
        done = subprocess.run(
            [sys.executable, str(JOB), root, store, JARS], capture_output=True, text=True, timeout=550, check=False
        )
        assert done.returncode == 0, done.stderr
        for secret in (ACCESS_KEY, SECRET_KEY):
            assert secret not in done.stdout + done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert said["problems"] == [""] * 3
        assert said["found"] == [[{"title": "title 1234"}], 1]
        assert said["native"]
        assert said["sum"] == [3000, sum(range(3000))]
        assert said["some"] == [*range(1, 100, 2), 1500]
        with needlepoint.open(root, store=store) as lake:
            rows = lake.sql("SELECT id, title, half FROM item ORDER BY id").rows()
            assert rows == [{"id": n, "title": f"title {n}", "half": n % 2} for n in range(3000)]
            (status,) = lake.status().tables
            assert (status.indexed, status.unknown) == (status.files, 0)
        assert "is empty" in said["elsewhere"]
        found = bucket.client.list_objects_v2(Bucket=bucket.name)["Contents"]
        left = {"/".join(each["Key"].split("/")[:4]) for each in found if "/_stage/" in each["Key"]}
        assert len(left) == 1  # left by the batch that went elsewhere; a sweep removes it
        assert len(found) == status.files + 5
