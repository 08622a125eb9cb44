"""Ctrl-C in the waits of a device that is busy: the fake driver holds all work back."""

import sys
import unittest

import fake_cuda

if not fake_cuda.LIBRARY.exists():
    print("skipped: no fake CUDA driver in this build")
    sys.exit(77)

BEGIN = """
    import ctypes, os, signal, ferry
    driver = ctypes.CDLL(os.environ["FERRY_CUDA_DRIVER"])
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    device = ferry.Device("cuda:0")
    x = ferry.tensor([1.0, 2.0]).upload(device)
    device.wait()
    syncs = ferry.ledger.totals()["syncs"]
    driver.fake_cuda_hold(1)
    y = x + x
    download = y.download()
"""
END = """
    except KeyboardInterrupt:
        print("interrupted", ferry.ledger.totals()["syncs"] - syncs)
    driver.fake_cuda_hold(0)
    print(download.wait().tolist())  # the request went on, and nothing was lost
"""


class Waits(unittest.TestCase):
    def wait(self, call):
        program = BEGIN + f"""
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        {call}
{END}"""
        self.assertEqual(fake_cuda.run(program), ("interrupted 1\n[2.0, 4.0]\n", ""))

    def test_ticket(self):
        self.wait("y.ticket.wait()")

    def test_download(self):
        self.wait("download.wait()")

    def test_device(self):
        self.wait("device.wait()")

    def test_a_handler_that_raises_nothing(self):
        """The wait goes on; its time limit holds."""
        program = BEGIN + """
    count = []
    signal.signal(signal.SIGALRM, lambda number, frame: count.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        y.ticket.wait(400_000_000)
    except ferry.Timeout:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(count) > 1)
    driver.fake_cuda_hold(0)
    print(download.wait().tolist())
"""
        self.assertEqual(fake_cuda.run(program), ("True\n[2.0, 4.0]\n", ""))


if __name__ == "__main__":
    unittest.main()
