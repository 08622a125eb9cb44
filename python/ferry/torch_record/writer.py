"""A thread that writes the recording's file, compressed if its name ends in .gz."""

import gzip
import os
import queue
import threading


class Writer:
    """A file behind a bounded queue of chunks. An error of the file is raised by the next call."""

    def __init__(self, path):
        self.file = gzip.open(path, "wb", 6) if path.endswith(".gz") else open(path, "wb")
        self.chunks, self.error = queue.Queue(8), None
        self.thread = threading.Thread(target=self.run, name="torch_record", daemon=True)
        self.thread.start()

    def run(self):
        while (chunk := self.chunks.get()) is not None:
            try:
                if self.error is None:
                    self.file.write(chunk)
            except BaseException as error:  # without this thread a full queue blocks the script
                self.error = error

    def write(self, chunk):
        if self.error is not None:
            raise self.error
        self.chunks.put(chunk)

    def close(self):
        self.chunks.put(None)
        self.thread.join()
        self.file.close()
        if self.error is not None:
            raise self.error

    def drop(self):
        """In the child of a fork, which has no such thread: its copy of the file's buffer is not
        written."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.file.fileno())
        os.close(null)
