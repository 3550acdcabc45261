"""The text index: words of a string column, with tantivy.

kind            what it is
build           texts to words and postings
search          an open index
payload         the files of one index, in one byte string
words           how texts are split into words
pairs           which words follow each other
patterns        which words or trigrams a condition needs
plan            sequences of words to a tantivy query
query_language  the language of text_match and score
evaluation      queries evaluated on texts, without an index
statistics      statistics for scores, from an index
"""

from needlepoint.indexes.text.evaluation import TextStatistics, bm25, evaluate
from needlepoint.indexes.text.query_language import Term, parse, terms
from needlepoint.indexes.text.statistics import WordIndex, statistics
from needlepoint.indexes.text.words import folded, folded_text, folds_alike

__all__ = [
    "Term",
    "TextStatistics",
    "WordIndex",
    "bm25",
    "evaluate",
    "folded",
    "folded_text",
    "folds_alike",
    "parse",
    "statistics",
    "terms",
]
