"""What error a node introduces and what error reaches it, by replaying nodes on their recorded inputs."""
