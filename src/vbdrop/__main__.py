"""``python -m vbdrop``: the command line."""

from vbdrop.cli.app import main

if __name__ == "__main__":
    main()
