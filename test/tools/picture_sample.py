#!/usr/bin/env python3
"""Writes recordings for the test of pictures: picture_sample.py <file> <what>

  server    a server of 30 s with four pools: one leaks, one is fragmented until it finds no memory, one sleeps;
            a pool, marks and frames have names that would be run as code if they became part of a page
  lost      the same, where the oldest events are lost and the process died
  snapshot  pools with spans that are live, cached, free, asleep and unknown
  arena     two pools whose pages move, and a damaged one, whose sums contradict each other
  short     a few events of each kind of the picture, cut off after the last: corpora of fuzz targets are
            made of this and of snapshot
"""
import random
import struct
import sys

SECTIONS = 8
HEADER = 8 + 4 + 4 + 8 + 4 + 4 + 32 + 7 * 8 + 32 + SECTIONS * 32
ITEM_SIZES = [128, 1, 64, 8, 32, 65536, 32, 24]
(OBJECTS, TEXTS, MODULES, STACKS, LIVE, BLOCKS, SPANS, RUNS) = range(SECTIONS)
UNKNOWN = (1 << 64) - 1
POOL, PROVIDER = 1, 2
ALLOC, FREE, REFUSED, PROVIDER_ALLOC, PROVIDER_FREE = 1, 2, 4, 5, 6
TRIM, SUSPEND, RESUME, MARK = 8, 9, 10, 15
PAGE_CREATE, PAGE_DESTROY, PAGE_DONATE, PAGE_RETIRE, PAGE_UNMAP, PAGES, PAGES_MOVED = range(16, 23)
MIB = 1 << 20
HOSTILE = "</script><script>hurt()</script>"


class Recording:
    """Builds the sections of include/umf/record_format.h."""

    def __init__(self, kind):
        self.kind = kind
        self.texts = bytearray(1)
        self.objects = [bytes(128)]
        self.stacks = [0]
        self.live, self.events, self.spans, self.runs = [], [], [], []
        self.now = 0

    def text(self, words):
        self.texts += words.encode() + b"\0"
        return len(self.texts) - len(words.encode()) - 1

    def object(self, kind, parent, name, figures=(UNKNOWN,) * 5, flags=0):
        live, count, held, peak, away = figures
        self.objects.append(struct.pack("<4I8Q48s", kind, flags, parent, 0, 4096 + len(self.objects), live, count,
                                        held, peak, away, 0, 0, name.encode()[:47]))
        return len(self.objects) - 1

    def stack(self, *frames):
        self.stacks += [len(frames)] + list(frames)
        return len(self.stacks) - len(frames) - 1

    def event(self, kind, owner=0, address=0, size=0, stack=0):
        self.events.append(struct.pack("<4Q", self.now, address, size, kind | owner << 16 | stack << 40))

    def blocks(self):
        parts = []
        for number in range(0, len(self.events), 2046):
            events = self.events[number:number + 2046]
            head = struct.pack("<QIIQQ4Q", number // 2046 + 1, len(events), 77, 0, 0, 0, 0, 0, 0)
            parts.append((head + b"".join(events)).ljust(65536, b"\0"))
        return parts

    def write(self, path, flags=7, dropped=0):
        items = [self.objects, [self.texts], [], [struct.pack("<Q", item) for item in self.stacks], self.live,
                 self.blocks(), self.spans, self.runs]
        table, body, offset = b"", b"", (HEADER + 63) // 64 * 64
        start = offset
        for index, parts in enumerate(items):
            data = b"".join(bytes(part) for part in parts)
            count = len(data) // ITEM_SIZES[index]
            table += struct.pack("<QQQII", offset if count else 0, count, count, ITEM_SIZES[index], 0)
            body += data.ljust((len(data) + 63) // 64 * 64, b"\0")
            offset = start + len(body)
        head = struct.pack("<8sIIQII4Q7Q4Q", b"UMFREC\r\n", 1, self.kind, offset, flags, 4242, 0, self.now or 1, 0,
                           self.now or 1, 10**9, 1767225600 * 10**9, dropped, 0, 1, 0, UNKNOWN, 0, 0, 0, 0)
        assert len(head + table) == HEADER, (len(head + table), HEADER)
        with open(path, "wb") as file:
            file.write((head + table).ljust(start, b"\0") + body)


class Pool:
    """A pool that cuts spans of one size, first fit."""

    def __init__(self, recording, provider, name, base, span):
        self.recording, self.base, self.span = recording, base, span
        self.number = recording.object(POOL, provider, name)
        self.holes, self.blocks, self.held = [], {}, 0

    def grow(self, stack):
        address = self.base + self.held
        self.recording.event(PROVIDER_ALLOC, self.number, address, self.span, stack)
        self.holes.append([address, self.span])
        self.held += self.span

    def alloc(self, size, stack):
        hole = next((hole for hole in self.holes if hole[1] >= size), None)
        if hole is None:
            self.grow(stack)
            return self.alloc(size, stack)
        address = hole[0]
        hole[0] += size
        hole[1] -= size
        self.blocks[address] = size
        self.recording.event(ALLOC, self.number, address, size, stack)
        return address

    def free(self, address):
        self.recording.event(FREE, self.number, address)
        self.holes.append([address, self.blocks.pop(address)])
        self.holes = self.merged()

    def merged(self):
        result = []
        for start, size in sorted(hole for hole in self.holes if hole[1]):
            if result and sum(result[-1]) == start and (start - self.base) % self.span:
                result[-1][1] += size
            else:
                result.append([start, size])
        return result

    def refuse(self, size, stack):
        self.recording.event(REFUSED, self.number, self.held, size, stack)


def server(lost):
    r = Recording(1)
    chance = random.Random(7)
    provider = r.object(PROVIDER, 0, "os")
    weights = Pool(r, provider, "weights", 0x7F10_0000_0000, 64 * MIB)
    cache = Pool(r, provider, "kv cache", 0x7F20_0000_0000, 32 * MIB)
    requests = Pool(r, provider, "requests", 0x7F30_0000_0000, 2 * MIB)
    hostile = Pool(r, provider, HOSTILE + "<!--", 0x7F40_0000_0000, 2 * MIB)
    load = r.stack(0x401100, 0x401900, 0x402000)
    grow = r.stack(0x401200, 0x401A00, 0x402000)
    parse = r.stack(0x401300, 0x401B00, 0x402000)
    keep = r.stack(0x401400, 0x401B00, 0x402000)
    r.event(MARK, address=r.text("start </script x> <!-- <script x>" + HOSTILE + "\u2028<!--"))
    for _ in range(20):
        r.now += 40_000_000
        weights.alloc(12 * MIB, load)
    hostile.alloc(MIB, keep)
    r.event(MARK, address=r.text("serving"))
    pages, open_requests = [], []
    for step in range(2400):
        r.now += 11_000_000
        pages.append(cache.alloc(MIB // 2, grow))
        if len(pages) > 380:
            cache.free(pages.pop(chance.randrange(len(pages))))
        open_requests.append(requests.alloc(chance.choice((4096, 8192, 30000)), parse))
        if len(open_requests) > 40:
            requests.free(open_requests.pop(0))
        if step % 3 == 0:
            requests.alloc(24000, keep)
        if step == 1000:
            r.event(SUSPEND, weights.number, 0, weights.held)
        if step == 1400:
            r.event(RESUME, weights.number, 0, weights.held)
            r.event(MARK, address=r.text("awake"))
        if step == 2200:
            for page in pages[::2]:
                cache.free(page)
            pages = pages[1::2]
            r.event(TRIM, cache.number, cache.held, cache.held)
        if step == 2250:
            cache.refuse(48 * MIB, grow)
    if lost:
        r.events = r.events[len(r.events) // 2:]
    return r, {"flags": 1, "dropped": len(r.events)} if lost else {"flags": 5}


def sums(r, number, pages, spare, stale, donated):
    r.event(PAGES, number, pages * MIB, spare * MIB)
    r.event(PAGES_MOVED, number, stale * MIB, donated * MIB)


def grow_arena(r, number, base, count):
    """`count` pages, each under a block."""
    for address in range(base, base + count * 2 * MIB, 2 * MIB):
        r.event(PAGE_CREATE, number, 0, 2 * MIB)
        r.event(PROVIDER_ALLOC, number, address, 2 * MIB)
        r.event(ALLOC, number, address, 2 * MIB)
    sums(r, number, count * 2, 0, 0, 0)


def donate(r, number, base, count):
    for address in range(base, base + count * 2 * MIB, 2 * MIB):
        r.event(PROVIDER_FREE, number, address, 2 * MIB)
    r.event(PAGE_DONATE, number, base, count * 2 * MIB)


def arena():
    r = Recording(1)
    provider = r.object(PROVIDER, 0, "cuda_vmm")
    activations, weights, damaged = (r.object(POOL, provider, name) for name in ("activations", "weights", HOSTILE))
    base = 0x7F10_0000_0000
    sums(r, activations, 0, 0, 0, 0)
    sums(r, weights, 0, 0, 0, 0)
    r.now += 100_000_000
    grow_arena(r, activations, base, 32)
    grow_arena(r, weights, base << 1, 8)
    r.now += 200_000_000
    for page in range(16):
        r.event(FREE, activations, base + page * 2 * MIB)
    r.now += 200_000_000
    donate(r, activations, base, 8)
    sums(r, activations, 64, 16, 16, 16)
    for page in range(4):
        r.event(PROVIDER_ALLOC, activations, base + (32 + page) * 2 * MIB, 2 * MIB)
    sums(r, activations, 64, 8, 16, 16)
    r.now += 200_000_000
    r.event(PAGE_UNMAP, activations, base, 16 * MIB)
    sums(r, activations, 64, 8, 0, 16)
    r.event(PAGES, damaged, 5, UNKNOWN)
    r.event(PAGES_MOVED, damaged, UNKNOWN, 1 << 63)
    r.event(ALLOC, damaged, base << 2, MIB)
    r.event(PROVIDER_ALLOC, damaged, UNKNOWN - 8 * MIB, 4 * MIB)
    r.event(PROVIDER_ALLOC, damaged, UNKNOWN - 6 * MIB, 6 * MIB)  # there is no address behind it
    r.now += 300_000_000
    r.event(MARK, address=r.text("end"))
    return r, {"flags": 5}


def short():
    r = Recording(1)
    pool = Pool(r, r.object(PROVIDER, 0, "os"), "pool", 0x7F20_0000_0000, MIB)
    stack = r.stack(0x401200, 0x402000)
    r.event(MARK, address=r.text("begin"))
    blocks = []
    for _ in range(12):
        r.now += 1000
        blocks.append(pool.alloc(MIB // 4, stack))
    for block in blocks[::2]:
        pool.free(block)
    r.event(FREE, pool.number, 0x1000)
    r.event(PROVIDER_FREE, pool.number, pool.base + 2 * MIB, MIB)
    r.event(TRIM, pool.number, pool.held, pool.held - MIB)
    r.event(SUSPEND, pool.number, 0, pool.held)
    r.now += 1000
    r.event(RESUME, pool.number, 0, pool.held)
    sums(r, pool.number, 3, 0, 0, 0)
    donate(r, pool.number, pool.base, 1)
    sums(r, pool.number, 3, 1, 1, 1)
    r.now += 1000
    r.event(PAGE_UNMAP, pool.number, pool.base, MIB)
    r.event(PAGE_RETIRE, pool.number, pool.base + MIB, MIB)
    r.event(PAGE_DESTROY, pool.number, 0, MIB)
    r.event(PAGE_CREATE, pool.number, 0, MIB)
    sums(r, pool.number, 3, 2, 0, 1)
    pool.refuse(MIB // 2, stack)
    return r, {"flags": 5}


def snapshot():
    r = Recording(2)
    provider = r.object(PROVIDER, 0, "os", (48 * MIB, 9, 48 * MIB, 64 * MIB, 0))
    kinds = [("busy", 16 * MIB, 0, 0), ("scattered", 16 * MIB, 0, 0), ("asleep", 8 * MIB, 2, 1), ("opaque", 8 * MIB, 0, 0)]
    leak = r.stack(0x401400, 0x401B00, 0x402000)
    for index, (name, size, flags, away) in enumerate(kinds):
        live = {"busy": 12 * MIB, "scattered": 4 * MIB, "asleep": 6 * MIB, "opaque": UNKNOWN}[name]
        number = r.object(POOL, provider, name, (live, 100, size, size, size if away else 0), flags)
        base = 0x7F10_0000_0000 + (index << 36)
        runs = {"busy": [(12 * MIB, 1, 1), (1 * MIB, 1, 2), (3 * MIB, 1, 3)],
                "scattered": [(MIB // 4, 1, 1), (MIB // 4, 1, 2), (MIB // 2, 1, 3)] * 16,
                "asleep": [(6 * MIB, 1, 1), (2 * MIB, 1, 3)], "opaque": [(2 * MIB, 1, 1), (6 * MIB, 1, 4)]}[name]
        first, address = len(r.runs), base
        for run_size, count, state in runs:
            r.runs.append(struct.pack("<QQII", address, run_size, count, state))
            address += run_size * count
        r.spans.append(struct.pack("<QQIIII", base, size, number, away, first, len(runs)))
        r.live.append(struct.pack("<4Q", 0, base, MIB * (index + 1), ALLOC | number << 16 | leak << 40))
    return r, {"flags": 7}


def main():
    what = sys.argv[2]
    recording, how = {"snapshot": snapshot, "short": short, "arena": arena}.get(what, lambda: server(what == "lost"))()
    recording.write(sys.argv[1], **how)
    if what == "short":
        with open(sys.argv[1], "rb+") as file:
            file.truncate(len(file.read().rstrip(b"\0")) + 8)


if __name__ == "__main__":
    main()
