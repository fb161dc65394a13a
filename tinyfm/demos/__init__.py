"""The commands: each module here runs as `python -m tinyfm.demos.NAME`."""
