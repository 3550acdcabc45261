"""A line for the user, on stdout or stderr, as a terminal can show it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from needlepoint.printable import printable, printable_lines

UNCHANGED = "nothing was changed."
KEPT = "what was built is kept, and queries scan the rest."


def say(text: str, *, err: bool = False) -> None:
    click.echo(printable_lines(text), err=err)


def one_line(text: object) -> str:
    """A message of several lines on one line."""
    return " ".join(str(text).split())


class ReportedInterrupt(KeyboardInterrupt):
    """An interrupt of which the user knows what it leaves."""


@contextmanager
def if_interrupted(tell: Callable[[], str]) -> Iterator[None]:
    """Report what an interrupted command leaves and how to continue, where that is more than is known beforehand
    (interrupts.py); then interrupt as usual."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say(f"interrupted: {tell()}", err=True)
        raise ReportedInterrupt from interrupt


class WarningHandler(logging.Handler):
    """Warnings of the library, one line each on stderr; with --verbose, what it does too."""

    def emit(self, record: logging.LogRecord) -> None:
        warning = "warning: " if record.levelno >= logging.WARNING else ""
        click.echo(f"{warning}{printable(one_line(record.getMessage()))}", err=True)


def show_warnings() -> None:
    log = logging.getLogger("needlepoint")
    if not any(isinstance(handler, WarningHandler) for handler in log.handlers):
        log.addHandler(WarningHandler())
    log.setLevel(logging.WARNING)


def show_everything() -> None:
    logging.getLogger("needlepoint").setLevel(logging.INFO)
