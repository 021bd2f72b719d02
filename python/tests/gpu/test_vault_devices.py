"""Vaults with memory of GPUs, in a real service: entries, views that change, copies, modules."""

import gc
import json
import os
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from gpu_helpers import needs_fake, torch
from helpers import run_python

import umf
from umf import vault

TOOL = Path(umf.__file__).parents[2] / "tools" / "umfctl"


def ones(value=1):
    return torch.full((1000,), float(value), device="cuda")


def write(model, value=1, **options):
    with model.draft(device="cuda", **options) as draft:
        draft.put("weight", ones(value))
        draft.put("own", torch.arange(10, device="cuda"), private=True)
        return draft.commit(digest=True)


def value_of(view, key="weight"):
    return float(view[key].torch()[0].cpu())


class Interface:
    """An array of a GPU that only has the older protocol."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.__cuda_array_interface__ = dict(tensor.__cuda_array_interface__)


class Producer:
    """An array of a GPU that only has DLPack."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **options):
        return self._tensor.__dlpack__()

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


def test_tensors_and_arrays_go_in_and_come_out(model):
    whole = torch.arange(60, dtype=torch.float32).reshape(6, 10)
    with umf.Pool("disjoint over os") as pool, model.draft(device="cuda:0") as draft:
        draft.put("host", whole)
        draft.put("gpu", whole.to("cuda"))
        draft.put("dlpack", Producer(whole.to("cuda")))
        draft.put("interface", Interface(whole.to("cuda")))
        draft.put("bytes", b"abc")
        draft.put("buffer", umf.from_bytes(b"abcd", pool), note=b"")
        draft.put("there", Producer(whole.to("cuda")), device="cpu")
        draft.put("half", Producer(whole.to("cuda").to(torch.bfloat16)))
        draft.put("empty", whole[:0])
        draft.put("flag", torch.ones(3, dtype=torch.bool, device="cuda"))
        draft.zero("cache", 100)
        with pytest.raises(BufferError, match="contiguous"):
            draft.put("turned", Producer(whole.to("cuda").t()))
        with pytest.raises(TypeError):
            draft.put("none", 5)
    with model.attach(devices="cuda") as view:
        for key in ("host", "gpu", "dlpack", "interface", "there"):
            found = view[key].torch()
            assert found.device.type == ("cpu" if key == "there" else "cuda"), key
            assert view[key].tensor == ("F32", (6, 10)) and torch.equal(found.cpu(), whole), key
            again = torch.from_dlpack(view[key])
            assert again.data_ptr() == view[key].ptr and again.shape == whole.shape
            del found, again
        assert view["host"].device == 0 and view["there"].device == -1
        assert view["there"].numpy().sum() == whole.sum()
        assert view["half"].torch().dtype == torch.bfloat16 and view["half"].torch().cpu().float()[5, 9] == 59
        for key, data in (("bytes", b"abc"), ("buffer", b"abcd"), ("cache", bytes(100))):
            into = bytearray(len(data))
            umf.copy(into, view[key])
            assert into == data, key
        assert view["empty"].torch().shape == (0, 10) and view["flag"].torch().cpu().all()
        assert view["flag"].__cuda_array_interface__["typestr"] == "|b1"
        state = model.state()
        assert state.devices == 1 and state.device.startswith("GPU-") and 0 < state.device_bytes <= state.bytes
    for wrong in (-1, "disjoint", "os", 5.5):
        with pytest.raises((ValueError, TypeError, umf.Error)):
            with model.draft(device=wrong) as draft:
                draft.put("a", b"x")


def test_the_cpu_does_not_reach_it(model):
    write(model)
    with model.attach(devices="cuda") as view:
        entry = view["weight"]
        for refused in (lambda: memoryview(entry), lambda: bytes(memoryview(entry)), entry.numpy):
            with pytest.raises(BufferError, match="GPU 0"):
                refused()
        with pytest.raises(BufferError, match="read-only"):
            umf.copy(entry, b"new")
        for refused in ({}, {"dl_device": (1, 0)}, {"copy": True}):
            with pytest.raises(BufferError):
                entry.__dlpack__(**refused)
        assert entry.__dlpack_device__() == (2, 0)
        umf.copy(view["own"], struct.pack("<q", 7))  # private memory is this view's own
        assert view["own"].torch()[0].cpu() == 7
        del entry


def test_views_keep_it(model):
    write(model)
    view = model.attach(devices="cuda")
    entry = view["weight"]
    tensor = entry.torch()
    for one in (view, model):
        with pytest.raises(BufferError, match="views in use"):
            one.close()
    with pytest.raises(BufferError, match="in_use=True"):
        view.suspend()
    del tensor
    assert entry.__cuda_array_interface__["data"] == (entry.ptr, True)  # and its users are not known
    with pytest.raises(BufferError, match="views in use"):
        view.close()
    del entry
    entry = view["weight"]
    view.close()
    for use in (entry.torch, lambda: entry.__cuda_array_interface__, lambda: entry.ptr, lambda: view["weight"]):
        with pytest.raises(ValueError):
            use()


def test_who_names_no_devices_gets_none(model):
    write(model)
    with pytest.raises(umf.NotSupportedError, match="devices") as refused:
        model.attach()
    assert refused.value.reason == "UMF_REASON_UNSUPPORTED"
    with model.attach(devices="none") as view:
        assert list(view) == ["own", "weight"] and view["weight"].tensor == ("F32", (1000,))
        entry = view["weight"]
        for use in (lambda: memoryview(entry), lambda: torch.from_dlpack(entry), entry.torch):
            with pytest.raises(BufferError, match="not mapped"):
                use()
        with pytest.raises(umf.NotSupportedError):
            view.verify()
        with pytest.raises(umf.NotSupportedError), model.draft() as draft:
            draft.copy(view)
    with pytest.raises(umf.Error):
        model.attach(devices="linux_vmm")


def without_driver():
    names = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    return {**names, "CUDA_VISIBLE_DEVICES": "none"}


@needs_fake
def test_umfctl_lists_names_without_a_driver(model, service):
    if not os.access(TOOL, os.X_OK):
        pytest.skip(f"{TOOL} is not built")
    write(model)
    for action in (["stat", model.name], ["ls"]):
        done = subprocess.run(
            [TOOL, "vault", *action, "--dir", service, "--json"], capture_output=True, text=True, env=without_driver()
        )
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert model.name in [one["name"] for one in report["vaults"]]
    done = subprocess.run([TOOL, "vault", "stat", model.name, "--dir", service], capture_output=True, text=True, env=without_driver())
    assert "weight" in done.stdout and "own" in done.stdout, done.stdout


def test_a_view_is_suspended_and_resumed(model):
    write(model, 3)
    view = model.attach(devices="cuda")
    tensor = view["weight"].torch()
    address = tensor.data_ptr()
    entry = view["weight"]
    view.suspend(in_use=True)
    view.suspend()  # it is
    assert view.suspended and entry.ptr == address
    for use in (entry.torch, lambda: torch.from_dlpack(entry), lambda: entry.__cuda_array_interface__):
        with pytest.raises(BufferError, match="suspended"):
            use()
    with pytest.raises(umf.Error, match="suspended"):
        view.verify()
    view.resume()
    view.resume()
    assert not view.suspended and float(tensor[0].cpu()) == 3 and tensor.data_ptr() == view["weight"].ptr
    view.suspend(queues=[torch.cuda.current_stream()], in_use=True)
    del tensor, entry
    view.close()


def test_a_view_moves(model):
    write(model, 1)
    view = model.attach(devices="cuda")
    tensor = view["weight"].torch()
    write(model, 2)
    with pytest.raises(BufferError):
        view.move()
    assert view.generation == 1 and float(tensor[0].cpu()) == 1
    assert view.move(in_use=True) == view.generation == 2
    assert float(tensor[0].cpu()) == 2 and view["weight"].ptr == tensor.data_ptr()
    with model.draft(device="cuda") as draft:
        draft.put("weight", ones(3)[:10])
    with pytest.raises(umf.InvalidArgumentError) as refused:
        view.move(in_use=True)
    assert refused.value.reason == "UMF_REASON_IDENTITY"
    assert view.generation == 2 and not view.suspended and float(tensor[0].cpu()) == 2
    view.suspend(in_use=True)
    with pytest.raises(umf.Error):
        view.move()
    assert view.suspended
    model.drop()
    with pytest.raises(umf.Error) as lost:
        view.resume()
    assert lost.value.reason == "UMF_REASON_STALE" and view.suspended
    del tensor
    view.close()


@needs_fake
def test_a_failing_driver_changes_nothing(model):
    from fake_driver import failing

    write(model, 4)
    view = model.attach(devices="cuda")
    with failing("cuMemMap", 1), pytest.raises(umf.Error):
        model.attach(devices="cuda")
    with failing("cuMemCreate", 1, and_on=True), pytest.raises(umf.Error):
        write(model, 5)
    view.suspend()
    with failing("cuMemMap", 1), pytest.raises(umf.Error):
        view.resume()
    assert view.suspended
    view.resume()
    assert value_of(view) == 4
    with failing("cuCtxSynchronize", 1, 906, and_on=True):  # a stream is captured
        with pytest.raises(umf.Error):
            view.close()
        with pytest.raises(umf.Error):
            model.close()
    assert value_of(view) == 4
    view.close()


def test_a_generation_is_stored_and_comes_back(model, tmp_path):
    write(model, 6, identity=b"v1")
    with vault.Vault(f"file:{tmp_path / 'stored'}") as stored:
        with model.attach(devices="cuda") as view, stored.draft() as draft:
            draft.copy(view)
        with stored.attach(identity=b"v1") as view:
            assert view["weight"].device == -1 and view["weight"].numpy()[999] == 6
            with model.draft(device=0) as draft:
                draft.copy(view)
                draft.commit(digest=True)
        with model.attach(devices=0, identity=b"v1") as view:
            assert view["weight"].device == 0 and value_of(view) == 6 and view.verify() == 2


def test_memory_is_evicted_and_made_again(model):
    write(model, 7)
    with pytest.raises(umf.InvalidArgumentError):
        model.evict()
    model.snapshot()
    assert model.state().copy_bytes > 0 and model.state().evicted == 0
    view = model.attach(devices="cuda")
    tensor = view["weight"].torch()
    model.evict(1)
    assert model.state().evicted == 1 and float(tensor[0].cpu()) == 7
    del tensor
    view.close()
    with model.attach(devices="none") as view:  # makes nothing again
        assert list(view) == ["own", "weight"] and model.state().evicted == 1
    with model.attach(devices="cuda", timeout=60) as view:
        assert value_of(view) == 7 and view.verify() == 2 and model.state().evicted == 0


def test_memory_is_made_again_from_a_folder(model, tmp_path):
    write(model, 7)
    model.snapshot()
    model.snapshot(folder=tmp_path / "stored")
    assert model.state().copy_bytes == 0
    model.evict()
    (tmp_path / "stored" / "1.vault").rename(tmp_path / "elsewhere")
    with model.attach(devices="cuda", timeout=60) as view:
        assert value_of(view) == 7 and view.verify() == 2 and model.state().evicted == 0
    with pytest.raises(ValueError):
        model.snapshot(folder="a\0b")
    with pytest.raises(TypeError):
        model.snapshot(folder=1)


def test_claims_of_a_gpu(model):
    with model.claim("kv", 1 << 20, device=0) as claim:
        assert claim.is_new and claim.epoch == 1 and claim.memory.device == 0 and claim.memory.nbytes >= 1 << 20
        tensor = claim.memory.torch().view(torch.float32)[:1024]
        assert float(tensor.sum().cpu()) == 0
        tensor.fill_(3)
        claim.commit(b"1024")
        with pytest.raises(BufferError):
            claim.close()
        del tensor
        (state,) = model.claims()
        assert state.key == "kv" and state.device.startswith("GPU-") and state.nbytes == claim.memory.nbytes
    with pytest.raises(umf.InvalidArgumentError) as error:
        model.claim("kv")
    assert error.value.reason == "UMF_REASON_IDENTITY"
    with model.claim("kv", device="cuda") as claim:
        assert not claim.is_new and claim.epoch == 2 and claim.note == b"1024"
        assert float(claim.memory.torch().view(torch.float32)[1023].cpu()) == 3
        assert claim.renew() == 2
    model.forget("kv")
    with model.claim("kv", 4096, device="cpu") as claim:
        assert claim.memory.device == -1 and model.claims()[0].device == ""


@pytest.fixture
def file(tmp_path):
    tensors = [("w", "F32", [40, 1000], struct.pack("<40000f", *range(40000))), ("none", "I8", [0], b""), ("h", "BF16", [2], b"\x80?\0@")]
    head, at = {}, 0
    for name, dtype, shape, data in tensors:
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(head).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors))
    return path


def test_safetensors_on_a_gpu(model, file):
    assert vault.load_safetensors(model, file, device="cuda") == 1
    with model.draft(from_generation=1) as draft:
        draft.keep()
        assert draft.load_safetensors(file, "p.", device=torch.device("cuda", 0)) == 3
    with model.attach(devices="cuda") as view:
        for prefix in ("", "p."):
            assert view[prefix + "w"].torch().cpu()[39, 999] == 39999
            assert view[prefix + "h"].torch().cpu().tolist() == [1, 2] and view[prefix + "none"].torch().numel() == 0


def test_a_module_on_a_gpu_gets_the_next_weights(model):
    source = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30))
    with model.draft(device="cuda") as draft:
        assert draft.put_module(source) == 7
    with torch.device("meta"):
        other = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.BatchNorm1d(30))
    view = model.attach(devices="cuda")
    view.module(other)
    assert other[0].weight.is_cuda and other[0].weight.data_ptr() == view["0.weight"].ptr
    assert torch.equal(other[0].weight.cpu(), source[0].weight)
    with torch.no_grad():
        source[0].weight += 1
    with model.draft(device="cuda") as draft:
        draft.put_module(source)
    view.move(in_use=True)
    assert torch.equal(other[0].weight.cpu(), source[0].weight)
    assert other[1].running_mean.data_ptr() != view["1.running_mean"].ptr  # buffers are the module's own
    with pytest.raises(BufferError):
        view.close()
    del other
    gc.collect()
    view.close()


def test_calls_of_other_threads(model):
    write(model, 1)
    with model.draft(device="cuda") as draft:
        draft.put("large", torch.zeros(1 << 22, dtype=torch.uint8, device="cuda"))
        draft.commit(digest=True)
    view = model.attach(devices="cuda")
    failed, refused = [], []

    def verify():
        for _ in range(20):
            try:
                view.verify()
            except (BufferError, umf.Error) as error:
                refused.append(str(error))
            except BaseException as error:
                failed.append(error)

    threads = [threading.Thread(target=verify) for _ in range(2)]
    for one in threads:
        one.start()
    for _ in range(50):
        try:
            view.suspend()
            view.resume()
        except BufferError as error:
            refused.append(str(error))
    for one in threads:
        one.join()
    view.resume()
    assert not failed and all("in progress" in one or "another call" in one or "suspended" in one for one in refused)
    assert view.verify() == 1
    view.close()


def test_another_process(model, service):
    write(model, 8)
    run_python(
        "import sys, umf.vault\n"
        "with umf.vault.Vault(sys.argv[1], folder=sys.argv[2]) as model, model.attach(devices='cuda') as view:\n"
        "    into = bytearray(4)\n"
        "    umf.copy(into, view['weight'], 4)\n"
        "    assert into == bytes.fromhex('00000041') and view.verify() == 2\n",
        model.name,
        service,
    )
