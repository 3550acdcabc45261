"""`python -m needlepoint` is the command `needle`."""

from needlepoint.cli import main

main()
