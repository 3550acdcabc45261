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
