"""Commands of the HTTP service.

serve   `needle serve`
token   `needle token`
"""
