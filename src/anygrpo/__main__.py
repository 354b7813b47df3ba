"""`python -m anygrpo`, as torchrun starts it."""

from anygrpo.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
