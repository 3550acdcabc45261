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
postings        which rows have a word and how often, from tantivy's files
split_postings  postings as a payload has them
ranking         the rows with the highest scores, from postings
"""

from needlepoint.indexes.text.evaluation import TextStatistics, bm25, evaluate
from needlepoint.indexes.text.query_language import AllOf, AnyOf, Fuzzy, Prefix, Query, Term, Word, parse, terms
from needlepoint.indexes.text.ranking import BestRows, Postings, RankedTerm, best_rows
from needlepoint.indexes.text.statistics import WordIndex, statistics
from needlepoint.indexes.text.words import folded, folded_text, folds_alike

__all__ = [
    "AllOf",
    "AnyOf",
    "BestRows",
    "Fuzzy",
    "Postings",
    "Prefix",
    "Query",
    "RankedTerm",
    "Term",
    "TextStatistics",
    "Word",
    "WordIndex",
    "best_rows",
    "bm25",
    "evaluate",
    "folded",
    "folded_text",
    "folds_alike",
    "parse",
    "statistics",
    "terms",
]
