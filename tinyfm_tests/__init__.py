"""The test suite, a package so that plain `pytest` in a fresh clone can import its helpers."""
