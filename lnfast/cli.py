"""The lnfast command."""


def main() -> None:
    raise SystemExit("coming")
