"""`python -m needlepoint` is the command `needle`."""

from needlepoint.cli import run

run()
