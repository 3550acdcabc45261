"""Damages files of a lake's store and queries the lake: `damage_driver.py ROOT PRISTINE SEED [ONLY=TIMES ...]`.

It runs in its own process, since reading damaged files may crash it. Each round begins with a copy of the store in
PRISTINE, changes bytes of one file, and compares the answers by every index with a scan, before and after a sync. The
driver prints a line before each round, and one for each difference. TIMES rounds damage paths that contain ONLY.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import needlepoint
from needlepoint.errors import NeedlepointError

CONDITIONS = {
    "ids": ("id = 77", "id = 1733", "id BETWEEN 900 AND 912", "id = 5000"),
    "codes": ("code = 'C000077'", "code LIKE 'C00012%'"),
    "brands": ("brand = 'rare'", "brand = 'b3' AND id < 300", "brand = 'none'"),
    "filters": ("code = 'C001999'", "code = 'nothing'"),
    "titles": ("text_match(title, 'goat')", "title LIKE '%airy cow 7%'", "text_match(title, '\"cow 77\"')"),
    "grams": ("note LIKE '%cow 77%'", "note LIKE '%zebra%'", "note LIKE '%goat 1%'"),
}
# Everything else is checked against the registry; locks have no content.
LEFT_ALONE = ("registry.db", "/turns/", "LOCK", ".lock")


def damaged(path: Path, chance: random.Random) -> str:
    """Change a few bytes of a file, or many; return what was done."""
    data = bytearray(path.read_bytes())
    how = chance.choice(["flip", "flip", "flip", "flips", "zeros", "end", "begin"])
    places = {
        "flip": [chance.randrange(len(data))],
        "flips": [chance.randrange(len(data)) for _ in range(16)],
        "zeros": range(start := chance.randrange(len(data)), min(len(data), start + 512)),
        "end": [chance.randrange(max(0, len(data) - 64), len(data))],
        "begin": [chance.randrange(min(64, len(data)))],
    }[how]
    for place in places:
        data[place] = 0 if how == "zeros" else data[place] ^ chance.randrange(1, 256)
    with path.open("r+b") as file:  # in place, as a disk error would
        file.write(data)
    return f"{how} at {[*places][:3]} of {len(data)}"


def differences(lake: needlepoint.Lake) -> Iterator[str]:
    for name, conditions in CONDITIONS.items():
        for condition in conditions:
            query = f"SELECT id, code, brand, title FROM item WHERE {condition} ORDER BY id"
            expected = lake.engine.sql(query, use_indexes=False).to_arrow()
            if not lake.engine.sql(query, use_indexes=name).to_arrow().equals(expected):
                yield f"{condition} by {name}"
    lake.sql("SELECT id FROM item WHERE id = 77").rows()


def attempt(root: Path, sync: bool) -> Iterator[str]:
    try:
        with needlepoint.open(root, refresh=0) as lake:
            if sync:
                lake.sync()
            yield from differences(lake)
            lake.advise("item")
    except NeedlepointError as error:
        yield f"error {type(error).__name__}: {error}"


def main(root: Path, pristine: Path, seed: int, only: str, times: int) -> None:
    store = root / ".needlepoint"
    found = [path for path in sorted(pristine.rglob("*")) if path.is_file() and path.stat().st_size]
    files = [path.relative_to(pristine) for path in found]
    files = [path for path in files if not any(part in f"/{path}" for part in LEFT_ALONE) and only in str(path)]
    chance = random.Random(seed)
    for number in range(times):
        path = chance.choice(files)
        shutil.rmtree(store)
        shutil.copytree(pristine, store)
        print(f"{number} {path}: {damaged(store / path, chance)}", flush=True)
        for sync in (False, True):
            for difference in attempt(root, sync):
                print(f"WRONG {'after sync' if sync else 'at once'}: {difference}", flush=True)


if __name__ == "__main__":
    for rounds in sys.argv[4:]:
        only, _, times = rounds.rpartition("=")
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), only, int(times))
    print("done", flush=True)
