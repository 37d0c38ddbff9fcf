"""What the screens draw: one page a module, and what pages are made of."""
