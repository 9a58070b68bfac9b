# SPDX-License-Identifier: Apache-2.0
"""What a program of a test writes. A file, not a pipe: what it wrote before it answered is there at once."""
import os
import tempfile


class Log:
    def __init__(self):
        self.file = tempfile.TemporaryFile()

    @property
    def lines(self):
        """The whole lines so far."""
        return self.text.split("\n")[:-1]

    @property
    def text(self):
        number = self.file.fileno()
        return os.pread(number, os.fstat(number).st_size, 0).decode(errors="replace")
