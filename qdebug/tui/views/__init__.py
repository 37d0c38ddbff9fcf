"""The views: one widget a module, with its keys and what they do, and what views are made of."""
