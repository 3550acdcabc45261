"""What every command takes, and the lake it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from needlepoint.lake import Lake

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(slots=True)
class Choices:
    """`asked` is the lake named on the command line, if one is: before the command or after it."""

    lake: str = "lake"
    asked: str | None = None
    debug: bool = False


def choose_lake(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    choices = context.ensure_object(Choices)
    choices.lake = value
    if parameter.name and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
        choices.asked = value


def choose_debug(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(Choices).debug = True


def common_options(command: Command) -> Command:
    """`--lake` and `--debug`, for those who write options after the command."""
    lake = click.option(
        "--lake",
        metavar="DIR",
        expose_value=False,
        callback=choose_lake,
        help="The lake's directory.  [env var: NEEDLE_LAKE; default: lake]",
    )
    debug = click.option(
        "--debug", is_flag=True, expose_value=False, callback=choose_debug, help="Show the traceback of an error."
    )
    return lake(debug(command))


def choices() -> Choices:
    return click.get_current_context().ensure_object(Choices)


@contextmanager
def open_lake(*, create: bool = False, directory: str | None = None) -> Iterator[Lake]:
    """The lake that was chosen, with a progress bar for long work."""
    import needlepoint
    from needlepoint.cli.screen import Bars

    with Bars() as bars, needlepoint.open(directory or choices().lake, create=create, progress=bars) as lake:
        yield lake
