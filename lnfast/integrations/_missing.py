"""The error of an optional package that is not installed."""


def missing(package: str, extra: str, error: ModuleNotFoundError) -> ImportError:
    """The error to raise for ``import package``: how to install it, where it is what is missing."""
    if error.name is None or error.name.partition(".")[0] != package:
        return error
    return ImportError(
        f"lnfast.integrations.{extra} needs {package}, which is not installed: "
        f"pip install 'lnfast[{extra}]'",
        name=package,
    )
