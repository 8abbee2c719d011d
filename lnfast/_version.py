"""The version of the package, for those who import it and for the build."""

__version__ = "0.1.0"
