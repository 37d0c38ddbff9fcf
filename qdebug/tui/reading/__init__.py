"""Opening, comparing and answering on worker threads, and the messages to and from the screen."""
