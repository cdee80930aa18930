"""One codec per file format."""
