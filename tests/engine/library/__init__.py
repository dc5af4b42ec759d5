"""The library on real SQLite files."""
