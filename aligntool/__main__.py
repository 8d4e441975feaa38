"""`python -m aligntool` and the installed command."""

import gc
import sys


def main() -> None:
    """Ctrl-C while the program is still being loaded is an interruption like any later one, and so is a second one."""
    gc.disable()  # until the command is loaded (LateCommand.load): all that is loaded stays
    try:
        from aligntool.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
