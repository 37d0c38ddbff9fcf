"""Results as a table for people, as Markdown for pull requests, and the schemas of the JSON for programs."""
