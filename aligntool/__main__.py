"""`python -m aligntool` and the installed command."""

from aligntool.cli import main

if __name__ == "__main__":
    main()
