"""Run the command line as ``python -m pykubeproxy``."""

from pykubeproxy.cli import main

if __name__ == "__main__":
    main()
