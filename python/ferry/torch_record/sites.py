"""Texts of call sites: "file.py:12", of the innermost line of the script, or of a library that is
neither PyTorch nor this package. Core finds the frame (python/recorder/sites.c)."""

import os

import torch

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARY = os.path.dirname(os.__file__) + os.sep
SKIPPED = (HERE, os.path.dirname(torch.__file__) + os.sep, "<", LIBRARY + "runpy",
           LIBRARY + "contextlib", LIBRARY + "threading", LIBRARY + "multiprocessing")


class Sites:
    """Numbers of call sites; `root` is the script's folder, to which its paths are relative."""

    def __init__(self, root):
        self.root = os.path.abspath(root) + os.sep
        self.texts = ["?"]
        self.by_text = {"?": 0}

    def is_skipped(self, name):
        return name.startswith(SKIPPED)

    def add(self, name, line):
        """The number of a line, and whether it is new."""
        path = os.path.abspath(name)
        if path.startswith(self.root):
            path = path[len(self.root):]
        text = "%s:%d" % (path, line)
        number = self.by_text.get(text)
        if number is not None:
            return number, False
        number = len(self.texts)
        self.texts.append(text)
        self.by_text[text] = number
        return number, True

    def drop_last(self):
        """The last one that was new has got no line in the file."""
        del self.by_text[self.texts.pop()]
