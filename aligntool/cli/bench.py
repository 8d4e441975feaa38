"""`aligntool bench`: the words that follow it.

In: the subcommands. Out: one group. Alone because `aligntool bench TARGET` and `aligntool bench list` are typed alike:
what is no subcommand is a target, and belongs to `bench run`.
"""

import typer
from typer.core import TyperGroup


class TargetOrCommand(TyperGroup):
    """`bench /srv` is `bench run /srv`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override] # click's Context
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


bench_app = typer.Typer(
    name="bench",
    cls=TargetOrCommand,
    help="Measure what a drive is good for, with fio; `bench TARGET` is `bench run TARGET`.\n\n"
    "Example: aligntool bench /srv --profile crystaldiskmark",
    no_args_is_help=True,
)
