"""The main screen: the frame around a view, the keys of all views, and the workers that read."""
