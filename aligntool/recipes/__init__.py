"""The drive database, goals and profiles, read from the recipes folder."""
