"""Put a content on a whole disk into a partition, and back."""
