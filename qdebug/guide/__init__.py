"""The guide: Markdown pages that `qdebug help` shows."""
