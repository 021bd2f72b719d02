"""Eight processes serve one model: each has its weights, and together they have them once.

    python3 fleet.py                                 # 256 MiB of random weights, in files of a folder
    python3 fleet.py --name llama --load FOLDER      # safetensors of a folder, in the memory of the service
    python3 fleet.py --name llama                    # again: attached in milliseconds
    python3 fleet.py --name llama --load FOLDER --device cuda      # in memory of a GPU

The resident memory of a process counts shared pages in each; its proportional part counts them once. Neither counts memory of GPUs, of which there is
one copy for all, too.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from typing import Any, Dict

import umf.vault

MIB = 1 << 20


def memory() -> Dict[str, int]:
    """Bytes of this process, by the kernel: Rss, and Pss, the proportional part."""
    with open("/proc/self/smaps_rollup") as file:
        lines = [line.split() for line in file if line.startswith(("Rss:", "Pss:"))]
    return {words[0][:-1]: int(words[1]) << 10 for words in lines}


def load(name: str, mib: int, folder: str, device: str) -> None:
    """Writes a generation, in a process of its own that ends: the weights stay."""
    with umf.vault.Vault(name) as model, model.draft(device=device) as draft:
        if folder:
            draft.load_safetensors(folder)
            return
        for layer in range(16):
            draft.put(f"layers.{layer}.weight", os.urandom(MIB // 16) * mib)


def touched(entry: Any) -> int:
    """The sum of a byte of each page: the process has it then. Of memory of a GPU: the sum of its first page."""
    if entry.device >= 0:
        first = bytearray(min(entry.nbytes, os.sysconf("SC_PAGESIZE")))
        umf.copy(first, entry, len(first))
        return sum(first)
    with memoryview(entry) as part:
        return sum(part[:: os.sysconf("SC_PAGESIZE")])


def serve(name: str, device: str, results: Any, everyone: Any) -> None:
    before = memory()
    start = time.perf_counter()
    with umf.vault.Vault(name) as model, model.attach(devices=None if device == "cpu" else device) as view:
        attached = time.perf_counter() - start
        size = total = 0
        for entry in view.values():
            size += entry.nbytes
            total += touched(entry)
        everyone.wait()  # all have the model now
        after = memory()
        everyone.wait()
        results.put((attached, size, total, after["Rss"] - before["Rss"], after["Pss"] - before["Pss"]))


def main(name: str, processes: int, device: str) -> None:
    context = multiprocessing.get_context("spawn")
    results: Any = context.SimpleQueue()
    everyone = context.Barrier(processes, timeout=600)
    fleet = [context.Process(target=serve, args=(name, device, results, everyone)) for _ in range(processes)]
    for one in fleet:
        one.start()
    found = [results.get() for _ in fleet]
    for one in fleet:
        one.join()
    size = found[0][1]
    assert len({one[1:3] for one in found}) == 1, "the processes have read different content"
    print(f"{processes} processes attached {size / MIB:.0f} MiB in {max(one[0] for one in found) * 1e3:.1f} ms at most")
    print(f"resident in each: {min(one[3] for one in found) / MIB:.0f} MiB or more")
    together = sum(one[4] for one in found)
    print(f"in all of them together: {together / MIB:.0f} MiB, {together / size:.2f} times the model")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", help="of the vault; default: files of a temporary folder")
    parser.add_argument("--load", metavar="FOLDER", default="", help="safetensors that become the next generation")
    parser.add_argument("--mib", type=int, default=256, help="of random weights, if the vault is empty")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--device", default="cpu", help="where the weights are: cpu, cuda, cuda:1; for a GPU with --name")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vault = words.name or f"file:{folder}/model"
        with umf.vault.Vault(vault) as model:
            is_empty = model.state().current == 0
        if is_empty or words.load:
            writer = multiprocessing.get_context("spawn").Process(target=load, args=(vault, words.mib, words.load, words.device))
            writer.start()
            writer.join()
            assert writer.exitcode == 0, "the model was not written"
        main(vault, words.processes, words.device)
