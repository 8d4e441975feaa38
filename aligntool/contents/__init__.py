"""What aligntool knows of each kind of content."""
