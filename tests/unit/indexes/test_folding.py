from __future__ import annotations

import unicodedata

import datafusion
import pyarrow as pa
import pytest

from needlepoint.indexes.text.words import folded, folds_alike, lettered, words


def test_letters_that_are_the_same_to_datafusion_are_folded_to_the_same() -> None:
    """For all letters that `folds_alike` accepts, even if Python does not know them yet."""
    letters = [chr(code) for code in range(1, 0x20000) if unicodedata.category(chr(code)) != "Cs"]
    context = datafusion.SessionContext()
    context.register_record_batches("all", [pa.table({"s": letters}).to_batches()])
    cased = context.sql(r"SELECT s FROM all WHERE s ~ '\p{CWCM}'").to_pydict()["s"]
    same = dict(zip(cased, folded(pa.array(cased)).to_pylist(), strict=True))
    context.register_record_batches("cased", [pa.table({"s": cased}).to_batches()])
    for letter in filter(folds_alike, cased):
        for other in context.sql(f"SELECT s FROM cased WHERE s ILIKE '{letter}'").to_pydict()["s"]:
            assert same[letter] == same[other], (hex(ord(letter)), hex(ord(other)))


@pytest.mark.parametrize("accent", ["", "É"])
@pytest.mark.parametrize("start", [0, 7, 1000])
def test_slices_of_every_string_type(start: int, accent: str) -> None:
    """Wherever the first text begins in memory: a slice that was cast begins in the middle of the data."""
    texts = [None if row % 97 == 0 else f"Row{row} of-{accent}" for row in range(3000)]
    wanted = [text and text.lower() for text in texts[start : start + 500]]
    base = pa.array(texts)
    for other in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        for part in (base.slice(start, 500).cast(other), base.cast(other).slice(start, 500)):
            for slice in (part, part.cast(pa.large_string()).slice(0, 500)):
                assert folded(slice).to_pylist() == wanted
                assert lettered(slice).to_pylist() == [text and text.replace("-", " ") for text in wanted]
                assert words(slice).to_pylist() == [text and text.replace("-", " ").split() for text in wanted]
