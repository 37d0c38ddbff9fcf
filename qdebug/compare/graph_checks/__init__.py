"""What the two graphs declare, before what they compute: constants, attributes, scales, nodes."""
