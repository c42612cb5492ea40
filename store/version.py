"""The version, in the lowest layer, so that every layer can name it."""

VERSION = "0.1.0"
