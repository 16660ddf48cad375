"""The folder that `python_path` puts on the PYTHONPATH of a drilled job."""
