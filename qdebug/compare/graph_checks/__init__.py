"""What the two graphs say, before what they compute: constants, attributes, scales, nodes."""
