"""`python -m fucina` is the command line."""

from fucina.cli.main import main

if __name__ == "__main__":
    main()
