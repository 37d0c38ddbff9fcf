"""Networks that distinguish arithmetics, and identification of a backend's arithmetic by running them."""
