"""Entry point of `python -m aligntool` and of the installed command."""

import sys


def main() -> None:
    """Run the command line. Ctrl-C while it is loaded, and a second Ctrl-C, exit with 130 like any later
    one.
    """
    try:
        from aligntool.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
