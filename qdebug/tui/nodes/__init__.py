"""The node list without widgets: rows as columns, filter, order, where the cursor is and has been."""
