"""Commands of the services.

serve   `needle serve`
token   `needle token`
mcp     `needle mcp`
share   `needle share`
"""
