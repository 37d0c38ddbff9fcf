"""The node list without widgets: rows as columns, filter, order, and the history of the cursor."""
