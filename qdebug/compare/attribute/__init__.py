"""Split the error of a node into introduced and propagated error, by replaying it on its recorded inputs."""
