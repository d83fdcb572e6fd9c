"""``python -m streamplug_datasets``."""

from streamplug_datasets.cli import main

if __name__ == "__main__":
    main(prog_name="streamplug-datasets")
