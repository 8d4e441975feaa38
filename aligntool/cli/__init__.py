"""Words in, exit code out: the only package that knows typer."""
