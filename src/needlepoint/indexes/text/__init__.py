"""The text index: words of a string column, with tantivy.

kind            what it is
words           how text is taken apart
build           texts become words and postings
payload         what tantivy wrote, as one run of bytes
pairs           which words follow each other
search          an open index
plan            runs of words become a query of tantivy
patterns        what conditions ask of words or trigrams
query_language  the language of text_match and score
evaluation      queries answered from texts alone
statistics      what scores are made with
"""
