"""The main screen: the frame around a view, the keys shared by all views, and the workers that read data."""
