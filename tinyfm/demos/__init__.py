"""The commands, `python -m tinyfm.demos.NAME` (translate, parses), and what they are made of."""
