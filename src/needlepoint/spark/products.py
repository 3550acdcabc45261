"""The data of the demo: products of a few partners, and the partners.

Every column follows from the number of the row, so that batches can be made apart and a product can be asked
for without having been written down anywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlepoint.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MAXIMUM_ROWS = 2**31

# An id is a permutation of the low 29 bits of the row number above a base: nine digits for the first half
# billion rows, in no order, and unique because every step below can be undone.
_BITS = 29
_LOW = (1 << _BITS) - 1
_BASE = 100_000_000
_FACTORS = (0x1B873593, 0x165667B1)  # odd: multiplication can be undone modulo a power of two
_SHIFTS = (15, 14)
_KEY = 0x0E6C732B  # with the default seed, row 4242 is product 384209819
_SEED = 7

_PARTNERS = (
    ("ACM", "Acme Wholesale", "US"),
    ("BLU", "Bluebird Records", "GB"),
    ("CAS", "Casa Verde", "ES"),
    ("DNB", "Dune & Bay", "AU"),
    ("ELB", "Elbe Handel", "DE"),
    ("FJD", "Fjord Foods", "NO"),
)

# Four months across the turn of a year: with six partners 24 partitions, the same ones in every batch.
_FIRST_SECOND = 1_730_419_200  # 2024-11-01T00:00:00Z
_SECONDS = 120 * 86_400  # until 2025-03-01

# The first words are frequent, the last are rare: a word of the end is in about one title of a hundred.
_VOCABULARY = """
the of and new best original classic premium fresh organic natural deluxe special live night blue red
green black white golden silver summer winter spring autumn little big happy wild sweet dark light love
heart river mountain ocean sky star moon sun fire rain road city country home garden street dance dream
song record album single remix session acoustic electric guitar piano violin drum bass voice choir
orchestra band jazz rock soul folk blues metal punk disco house techno opera anthem ballad echo rhythm
melody harmony chorus vinyl coffee tea bread butter cheese yogurt honey sugar salt pepper rice pasta bean
lentil tomato potato onion garlic carrot apple pear plum cherry peach lemon orange banana mango berry
grape melon nut almond walnut hazelnut cocoa chocolate vanilla cinnamon ginger mint basil thyme olive oil
vinegar mustard soup sauce pickle jam juice water soda cider beer wine whisky biscuit cookie cake pie
muffin waffle pancake cereal oat wheat barley corn flour yeast egg chicken turkey beef pork lamb salmon
tuna shrimp lobster oyster puzzle marble copper velvet bamboo cotton linen wool denim soap candle towel
kettle lantern basket mirror blanket farmhouse meadow kefir saffron truffle juniper milk cream ice goat
cow dairy
"""
_WORDS = tuple(_VOCABULARY.split())


def product_id_of(row: int, *, seed: int = _SEED) -> int:
    """The id of the row with this number. Numbers from the number of rows on give ids that do not exist.

    >>> product_id_of(4242)
    384209819
    """
    mixed = (row & _LOW) ^ _key(seed)
    for factor, shift in zip(_FACTORS, _SHIFTS, strict=True):
        mixed = mixed * factor & _LOW
        mixed ^= mixed >> shift
    return _BASE + (row >> _BITS << _BITS | mixed)


def products(spark: SparkSession, rows: int, *, batch: int, batches: int, seed: int = _SEED) -> DataFrame:
    """Batch number `batch` (from 0) of `batches` that together hold `rows` products."""
    if not 0 <= rows <= MAXIMUM_ROWS:
        raise UsageError(f"{rows} rows are asked for; the demo makes up to {MAXIMUM_ROWS:,}.")
    if not 0 <= batch < batches:
        raise UsageError(f"there is no batch {batch} among {batches}; the first is 0.")
    from pyspark.sql import functions as F  # noqa: N812 (its usual name)

    start, end = rows * batch // batches, rows * (batch + 1) // batches
    row = F.col("id")
    second = _FIRST_SECOND + _below(row, _SECONDS, seed, "second")
    created = F.timestamp_micros(second * 1_000_000 + _below(row, 1_000_000, seed, "microsecond"))
    codes = F.array(*[F.lit(code) for code, _, _ in _PARTNERS])
    return spark.range(start, end).select(
        _product_id(row, seed).alias("product_id"),
        F.concat(F.lit("G0105"), F.lpad(F.hex(_scattered(row)), 8, "0")).alias("upc"),
        created.alias("created_timestamp"),
        _title(row, seed).alias("title"),
        F.get(codes, _below(row, len(_PARTNERS), seed, "partner")).alias("partner"),
        F.year(created).alias("year"),
        F.month(created).alias("month"),
    )


def partners(spark: SparkSession) -> DataFrame:
    """The partners: code, name and country."""
    return spark.createDataFrame(list(_PARTNERS), "partner string, name string, country string")


def _key(seed: int) -> int:
    return (_KEY + (seed - _SEED) * 0x2545F491) & _LOW


def _product_id(row: Column, seed: int) -> Column:
    """`product_id_of` as a Spark expression. No product exceeds 58 bits, so nothing overflows."""
    from pyspark.sql import functions as F  # noqa: N812

    mixed = row.bitwiseAND(_LOW).bitwiseXOR(_key(seed))
    for factor, shift in zip(_FACTORS, _SHIFTS, strict=True):
        mixed = (mixed * F.lit(factor)).bitwiseAND(_LOW)
        mixed = mixed.bitwiseXOR(F.shiftright(mixed, shift))
    high = F.shiftleft(F.shiftright(row, _BITS), _BITS)
    return F.lit(_BASE).cast("long") + high.bitwiseOR(mixed)


def _scattered(row: Column) -> Column:
    """A number of 32 bits of its own for every row."""
    from pyspark.sql import functions as F  # noqa: N812

    product = row * F.lit(0x5851F42D)  # odd, and below 2^31: the product of two such numbers fits 63 bits
    return product.bitwiseAND(F.lit(0xFFFFFFFF))


def _below(row: Column, limit: int, seed: int, purpose: str) -> Column:
    """A number in [0, limit) that follows from row, seed and purpose."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.pmod(F.xxhash64(row, F.lit(f"{purpose}/{seed}")), F.lit(limit))


def _title(row: Column, seed: int) -> Column:
    """Two to six words, the early ones of the vocabulary more often than the late ones."""
    from pyspark.sql import functions as F  # noqa: N812

    words = F.array(*[F.lit(word) for word in _WORDS])
    size = len(_WORDS)
    # Squaring a uniform number makes small ones frequent: i*i/size for i in [0, size).
    draws = (_below(row, size * size, seed, f"word {position}") for position in range(6))
    picks = [F.get(words, F.floor(draw * draw / F.lit(size**3)).cast("int")) for draw in draws]
    return F.concat_ws(" ", F.slice(F.array(*picks), F.lit(1), _below(row, 5, seed, "length").cast("int") + 2))
