"""The container image: build it without a registry (``build``), and run the daemon in it in a laboratory (``run``)."""
