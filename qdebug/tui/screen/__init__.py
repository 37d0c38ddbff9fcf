"""The one screen: the frame around a view, the keys that all views share, and the talk with the reader."""
