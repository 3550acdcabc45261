from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from needlepoint.errors import UsageError
from needlepoint.spark import source as source_module
from needlepoint.spark.source import read_source
from needlepoint.spark.stage import stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, path: Path | str, **arguments: str | bool) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in read_source(spark, str(path), **arguments).collect())  # type: ignore[arg-type]


CSV = 'id,name\n1,"a, ""quoted"" b"\n2,"two\nlines"\n'
PARSED = [(1, 'a, "quoted" b'), (2, "two\nlines")]


def test_csv(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "odd, 5% #1.csv"
    file.write_text(CSV)
    assert rows(spark, file) == PARSED
    (tmp_path / "a.CSV.gz").write_bytes(gzip.compress(CSV.encode()))
    assert rows(spark, tmp_path / "a.CSV.gz") == PARSED
    (tmp_path / "a.tsv").write_text("id\tname\n1\tx,y\n")
    assert rows(spark, tmp_path / "a.tsv") == [(1, "x,y")]
    (tmp_path / "data.txt").write_text("1,007\n")
    assert rows(spark, tmp_path / "data.txt", format="csv", header=False) == [(1, 7)]
    assert rows(spark, tmp_path / "data.txt", format="csv", header=False, schema="a int, b string") == [(1, "007")]


def test_names_with_the_characters_of_patterns(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "odd [1] {x} *.csv"
    file.write_text("a\n1\n")
    assert rows(spark, file, schema="a int") == [(1,)]
    with pytest.raises(UsageError, match="for a pattern"):
        read_source(spark, str(file))
    pq.write_table(pa.table({"a": [1]}), tmp_path / "[a].parquet")
    assert rows(spark, tmp_path / "[a].parquet") == [(1,)]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id BIGIN, name STRING", 'Unsupported data type "BIGIN"'),
        ("id BIGINT name STRING", "Syntax error at or near 'name'"),
        ("id", "Syntax error"),
        ("id DECIMAL(99,2)", "exceeds max precision 38"),
        ("id BIGINT, id STRING", "id"),
    ],
)
def test_a_schema_with_a_mistake(spark: SparkSession, tmp_path: Path, schema: str, words: str) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    with pytest.raises(UsageError) as caught:
        read_source(spark, str(tmp_path / "a.csv"), schema=schema)
    assert words in str(caught.value)


def test_json(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "lines.json": '{"a":1}\n{"a":2}\n',
        "lines.jsonl": '\n{"a":1}\n{"a":2}',
        "lines.ndjson": '[{"a":1}]\n[{"a":2}]\n',
        "one-line.json": '[{"a":1},{"a":2}]',
        "array.json": '\n[\n  {"a": 1},\n  {"a": 2}\n]\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert rows(spark, tmp_path / name) == [(1,), (2,)], name
    (tmp_path / "array.json.gz").write_bytes(gzip.compress(texts["array.json"].encode()))
    assert rows(spark, tmp_path / "array.json.gz") == [(1,), (2,)]


def test_json_of_several_kinds_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """If each file is read as one document, Spark takes its first value and silently ignores the rest."""
    array, lines, (source, more) = '[\n {"a": 1},\n {"a": 2}\n]\n', '{"a": 3}\n', (tmp_path / "in", tmp_path / "more")
    for directory in (source, more):
        directory.mkdir()
        (directory / "1.json").write_text(array)
    (source / "2.json").write_text(lines)
    with pytest.raises(UsageError, match=r"1\.json is an array .*2\.json has one record a line"):
        read_source(spark, str(source))
    (source / "1.json").rename(source / "3.json")  # in either order
    with pytest.raises(UsageError, match=r"3\.json is an array .*2\.json has one record a line"):
        read_source(spark, str(source))
    (more / "2.json").write_text(array.replace("1", "3").replace("2", "4"))
    (more / "blank.json").write_text("\n")
    assert rows(spark, more) == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ('[\n{"a": 1}\n]\n[\n{"a": 2}\n]\n', False),
        ('[\n{"a": 1}\n][{"a": 2}]', False),
        ('[\n{"a": 1}\n]\n{"a": 2}\n', False),
        ('[\n{"a": 1}\n]\n"', False),
        ('[\n{"a": 1}\n]' + " " * 3000 + "oops", False),
        ('[\n{"a": "]}[", "b": "\\\\"}\n, {"a": "\\"]"}]\n\n', True),
        ('[\n{"a": "' + 'long \\" ] ' * 1000 + '"}\n]' + "\n" * 3000, True),
    ],
)
def test_what_follows_a_document_is_not_passed_over(tmp_path: Path, monkeypatch, text: str, fits: bool) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    for portion in (7, 1000, 1 << 20):  # bytes to check at a time
        monkeypatch.setattr(source_module, "_LONGEST_LINE", portion)
        if fits:
            assert source_module._are_json_documents([file])
        else:
            with pytest.raises(UsageError, match=r"a\.json holds more than the one array"):
                source_module._are_json_documents([file])


def test_parquet_directory_keeps_columns_that_only_some_files_have(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2], "b": ["x"]}), tmp_path / "2.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert [row.asDict() for row in read_source(spark, str(tmp_path)).orderBy("a").collect()] == [
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]


def test_directories(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("plain/1.csv", "plain/deep/er/2.csv", "hive/day=1/1.csv", "hive/day=2/2.csv"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"n\n{file.stem}\n")
    assert rows(spark, tmp_path / "plain") == [(1,), (2,)]
    assert rows(spark, tmp_path / "hive") == [(1, 1), (2, 2)]
    monkeypatch.chdir(tmp_path)
    assert rows(spark, "hive/*/2.csv") == [(2,)]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("bad.json", '{"a":1}\n{"a": oops\n', "Unrecognized token 'oops'"),
        ("bad.jsonl", '{"a":1}\n\n{"a":\n', "Unexpected end-of-input"),
        ("array.json", '[\n{"a":1},\n{"a"\n', "Unexpected end-of-input"),
        ("wide.csv", "a,b\n1,2\n3,4,5\n", "Malformed CSV record: 3,4,5"),
        ("short.csv", "a,b\n1,2\n3\n", "Malformed CSV record: 3"),
    ],
)
def test_bad_records_are_refused(spark: SparkSession, tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as refused:
        stage(read_source(spark, str(tmp_path / name)), tmp_path / "batch")
    assert str(tmp_path / name) in str(refused.value)
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "batch").exists()


def test_a_record_against_the_schema_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "two words.csv"
    file.write_text("a,b\n1,x\none,y\n")
    frame = read_source(spark, str(file), schema="a int, b string")
    with pytest.raises(UsageError, match=r'two words\.csv cannot be read: For input string: "one"'):
        stage(frame, tmp_path / "batch")


def test_headers_that_differ_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,2\n")
    (tmp_path / "2.csv").write_text("b,a\n1,2\n")
    source, batch = str(tmp_path), tmp_path.parent / "batch of headers"
    with pytest.raises(UsageError, match="header"):
        stage(read_source(spark, source), batch)


def test_sources_that_are_not_there(spark: SparkSession, tmp_path: Path) -> None:
    def refused(path: Path | str, problem: str, format: str | None = None) -> None:
        with pytest.raises(UsageError, match=problem) as error:
            read_source(spark, str(path), format)
        assert "\n" not in str(error.value)

    refused(tmp_path / "nothing.csv", "there is no file or directory")
    refused(tmp_path, "holds no data files")
    (tmp_path / "empty.csv").touch()
    refused(tmp_path / "empty.csv", "is empty")
    refused(tmp_path, "is empty")
    (tmp_path / "blank.json").write_text("\n\n")
    refused(tmp_path / "blank.json", "holds no records")
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", r"cannot be recognised by its name. Give a format: csv, json, parquet, tsv")
    refused(tmp_path / "notes.txt", "unknown format 'xml'", "xml")
    refused(tmp_path, r"several formats \(json, others\)")
    (tmp_path / "_hidden.csv").write_text("a\n1\n")
    refused(tmp_path / "_hidden.csv", "Spark ignores files")
    (tmp_path / "fake.parquet").write_text("this is not Parquet")
    refused(tmp_path / "fake.parquet", "fake.parquet cannot be read: .*not a Parquet file")
    refused("nowhere://bucket/file", "cannot be recognised by its name")
    refused("nowhere://bucket/file.csv", "cannot be read as csv: .*nowhere")
