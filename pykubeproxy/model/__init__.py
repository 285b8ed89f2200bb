"""Pure meaning: service ports, endpoints, and which endpoints serve which traffic."""
