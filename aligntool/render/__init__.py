"""Render values as text, JSON, HTML, SVG and Prometheus metrics."""
