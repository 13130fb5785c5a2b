"""`python -m kodoctl` is `kodoctl`."""

from kodoctl.cli.main import main

if __name__ == "__main__":
    main()
