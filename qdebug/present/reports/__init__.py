"""Results as a table, a page, Markdown, JUnit XML, CSV and more, each a function of one result; also JSON schemas."""
