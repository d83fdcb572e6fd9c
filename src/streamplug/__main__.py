"""``python -m streamplug``: the command line."""

from streamplug.cli import main

main()
