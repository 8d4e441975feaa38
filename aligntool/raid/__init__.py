"""Arrays: plan members, chunks and steps, and apply the steps."""
