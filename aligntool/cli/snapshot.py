"""`aligntool snapshot`: this machine as a file, for a bug report or an audit elsewhere."""

from typing import Annotated

import typer

from aligntool.cli.options import OverwriteOption
from aligntool.linux.files import write_snapshot
from aligntool.linux.snapshot import collect
from aligntool.linux.sysfs import Tree


def snapshot(
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Where to: .tar.xz or .tar.gz.")],
    *,
    serials: Annotated[bool, typer.Option("--serials", help="Keep serial numbers, UUIDs and labels.")] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Capture what an audit reads of this machine.

    Serial numbers are left out unless --serials is given.

    Example: sudo aligntool snapshot -o server7.tar.xz

    The file is audited with: aligntool audit --sysroot server7.tar.xz
    """
    write_snapshot(output, collect(Tree(""), serials=serials), overwrite=overwrite)
    print(f"{output} written; audit it with: aligntool audit --sysroot {output}")
