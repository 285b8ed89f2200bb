"""What others read over HTTP: metrics, health, state."""
