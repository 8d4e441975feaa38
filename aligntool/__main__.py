"""Entry point of `python -m aligntool` and of the installed command."""

import gc
import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is loaded, and a second Ctrl-C, exit with 130 like any later one."""
    gc.disable()  # until the command is loaded (LateCommand.load): nothing that is loaded becomes garbage
    try:
        from aligntool.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
