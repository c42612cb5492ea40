"""Background jobs: one Jupyter kernel each."""
