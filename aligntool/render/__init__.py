"""Values -> text, JSON, HTML, SVG, Prometheus."""
