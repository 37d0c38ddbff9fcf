"""The command line: one file per verb. Heavy modules are only imported when a verb runs."""
