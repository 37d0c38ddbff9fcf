"""Which tensor of the backend run answers to which tensor of the reference run: from names, structure, layouts."""
