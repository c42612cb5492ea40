"""The wire: stdio, framing, dialects, dispatch and the command line."""
