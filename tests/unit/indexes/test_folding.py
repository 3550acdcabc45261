from __future__ import annotations

import unicodedata

import datafusion
import pyarrow as pa

from needlepoint.indexes.words import folded, folds_alike


def test_letters_that_are_the_same_to_datafusion_are_folded_to_the_same() -> None:
    """Of those that `folds_alike` answers for; also of letters that Python does not know yet."""
    letters = [chr(code) for code in range(1, 0x20000) if unicodedata.category(chr(code)) != "Cs"]
    context = datafusion.SessionContext()
    context.register_record_batches("all", [pa.table({"s": letters}).to_batches()])
    cased = context.sql(r"SELECT s FROM all WHERE s ~ '\p{CWCM}'").to_pydict()["s"]
    same = dict(zip(cased, folded(pa.array(cased)).to_pylist(), strict=True))
    context.register_record_batches("cased", [pa.table({"s": cased}).to_batches()])
    for letter in filter(folds_alike, cased):
        for other in context.sql(f"SELECT s FROM cased WHERE s ILIKE '{letter}'").to_pydict()["s"]:
            assert same[letter] == same[other], (hex(ord(letter)), hex(ord(other)))
