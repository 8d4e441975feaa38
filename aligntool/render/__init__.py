"""Values -> text, JSON, Prometheus: the only folder that chooses how anything looks."""
