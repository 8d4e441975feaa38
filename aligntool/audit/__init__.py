"""An inventory -> verdicts and findings: what starts off its boundaries, what it costs, what else is wrong. Pure."""
