"""The one exception type for bad input."""


class InputError(ValueError):
    """Something the user handed over (a file, a folder, an option) cannot be used.

    It is raised where the input is read. The message is one line that names the input, says what
    is wrong with it and what to do; commands print that line and exit with status 2.
    """
