"""Call sites: the innermost line of the script, or of a library that is neither PyTorch nor this
package."""

import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
LIBRARY = os.path.dirname(os.__file__) + os.sep
SKIPPED = (HERE, os.path.dirname(torch.__file__) + os.sep, "<", LIBRARY + "runpy",
           LIBRARY + "contextlib", LIBRARY + "threading", LIBRARY + "multiprocessing")


class Sites:
    """Numbers of call sites. A site is a text "file.py:12"; `root` is the script's folder."""

    def __init__(self, root):
        self.root = os.path.abspath(root) + os.sep
        self.skips = {}  # by file name: is it left out?
        self.numbers = {}  # by code and instruction
        self.texts = ["?"]
        self.by_text = {"?": 0}

    def here(self):
        """The number of the call site; 0: none of the script's lines is on the stack."""
        frame = sys._getframe(2)
        skips = self.skips
        while frame is not None:
            code = frame.f_code
            name = code.co_filename
            skip = skips.get(name)
            if skip is None:
                skip = skips[name] = name.startswith(SKIPPED)
            if not skip:
                key = (code, frame.f_lasti)
                number = self.numbers.get(key)
                return number if number is not None else self.add(key, name, frame.f_lineno)
            frame = frame.f_back
        return 0

    def add(self, key, name, line):
        path = os.path.abspath(name)
        if path.startswith(self.root):
            path = path[len(self.root):]
        text = "%s:%d" % (path, line)
        number = self.by_text.get(text)
        if number is None:
            number = self.by_text[text] = len(self.texts)
            self.texts.append(text)
        self.numbers[key] = number
        return number
