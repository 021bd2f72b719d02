"""A link between two network devices that delays and loses: link.py DEVICE DEVICE

Makes both devices, which can be moved into other network namespaces afterwards, and prints "ready". Then it carries frames
from one to the other. Each line of the input is "MILLISECONDS PERCENT": how long a frame travels, and how many are lost. It
ends with its input.
"""

import collections
import fcntl
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME = 1 << 16


def make(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


class Link:
    """Frames on their way, in the order in which they arrive."""

    def __init__(self, devices):
        self.to = {devices[0]: devices[1], devices[1]: devices[0]}
        self.delay, self.loss = 0.0, 0.0
        self.frames, self.chance = collections.deque(), random.Random(1)

    def take(self, device):
        try:
            while True:
                frame = os.read(device, FRAME)
                if self.chance.random() >= self.loss:
                    self.frames.append((time.monotonic() + self.delay, self.to[device], frame))
        except OSError:  # no more, or the device is down
            pass

    def deliver(self):
        """Seconds until the next frame arrives; None: there is none."""
        while self.frames:
            due, device, frame = self.frames[0]
            left = due - time.monotonic()
            if left > 0:
                return left
            self.frames.popleft()
            try:
                os.write(device, frame)
            except OSError:  # it is down, or full: lost
                pass
        return None

    def run(self):
        lines, rest = sys.stdin.fileno(), b""
        while True:
            ready, _, _ = select.select([lines, *self.to], [], [], self.deliver())
            for one in ready:
                if one != lines:
                    self.take(one)
                    continue
                more = os.read(lines, 4096)
                if not more:
                    return
                *whole, rest = (rest + more).split(b"\n")
                for line in whole:
                    milliseconds, percent = map(float, line.split())
                    self.delay, self.loss = milliseconds / 1e3, percent / 1e2


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        link = Link([make(name) for name in sys.argv[1:]])
    except OSError as error:
        sys.exit(f"no network devices can be made: {error}")
    print("ready", flush=True)
    link.run()


main()
