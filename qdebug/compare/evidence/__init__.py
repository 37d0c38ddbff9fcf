"""The evidence on each compared tensor: everything that is loaded, replayed or searched before a check judges it."""
