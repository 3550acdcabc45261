"""File cards: all that is needed to read any page of a file without its footer.

card             the card itself
describe         a file's footer and page indexes become a card and bounds
array_container  how cards, and payloads like them, are stored
"""
