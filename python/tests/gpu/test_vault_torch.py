"""Vaults with PyTorch: entries, and modules whose parameters live in a vault."""

import copy

import pytest
from gpu_helpers import torch

import umf
from umf import vault


@pytest.fixture
def name(tmp_path):
    return f"file:{tmp_path / 'model'}"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.norm = torch.nn.BatchNorm1d(16)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 32, dtype=torch.float32), torch.nn.ReLU())
        self.back = torch.nn.Linear(32, 16)
        self.head = torch.nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("inverse", torch.arange(16.0), persistent=False)

    def forward(self, tokens):
        return self.head(self.back(self.body(self.norm(self.embed(tokens)))) * self.inverse)


def write(name, model, **options):
    with vault.Vault(name) as store, store.draft() as draft:
        return draft.put_module(model, **options)


def test_a_module_lives_in_a_vault(name):
    model = Model().eval()
    tokens = torch.tensor([1, 2, 49])
    expected = model(tokens)
    assert write(name, model) == 12
    with torch.device("meta"):
        other = Model().eval()
    with vault.Vault(name) as store:
        view = store.attach()
        assert view.module(other) is other
        assert other.head.weight is other.embed.weight
        assert not any(one.requires_grad for one in other.parameters())
        assert other.embed.weight.data_ptr() == view["embed.weight"].ptr == view["head.weight"].ptr
        assert torch.equal(other(tokens), expected)
        other.train()
        other(tokens)  # buffers are memory of this process
        assert not torch.equal(other.norm.running_mean, model.norm.running_mean)
        third = view.module(Model())  # and not of other modules of the view
        assert torch.equal(third.norm.running_mean, model.norm.running_mean)
        del third
        with pytest.raises(BufferError):
            view.close()
        with store.attach() as second:
            assert torch.equal(second["norm.running_mean"].torch(), model.norm.running_mean)
        del other
        view.close()


def test_a_module_that_does_not_fit_is_left_as_it_was(name):
    write(name, Model())
    with vault.Vault(name) as store, store.attach() as view:
        other = Model()
        other.body[0] = torch.nn.Linear(16, 33)
        before = copy.deepcopy(other.state_dict())
        with pytest.raises(ValueError, match=r"'body.0.weight'.*\[33, 16\].*\[32, 16\]"):
            view.module(other)
        with pytest.raises(ValueError, match="bfloat16"):
            view.module(Model().to(torch.bfloat16))
        other.body[0] = torch.nn.Linear(16, 32)
        other.extra = torch.nn.Linear(3, 4)
        with pytest.raises(KeyError, match="extra.weight, extra.bias"):
            view.module(other)
        assert torch.equal(other.embed.weight, before["embed.weight"])
        assert other.embed.weight.requires_grad
        with pytest.raises(KeyError, match="and 5 more"):
            view.module(Model(), prefix="other.")


def test_names_that_only_one_of_tied_tensors_has(name):
    """Files of weights have one name of tied weights, and no buffers that are not persistent."""
    model = Model().eval()
    with vault.Vault(name) as store, store.draft() as draft:
        for key, tensor in model.state_dict().items():
            if key != "head.weight":
                draft.put("m." + key, tensor)
    other = Model().eval()
    with vault.Vault(name) as store, store.attach() as view:
        view.module(other, prefix="m.")
        assert other.head.weight is other.embed.weight
        assert torch.equal(other(torch.tensor([3, 4])), model(torch.tensor([3, 4])))
        empty = Model()
        empty.inverse = torch.empty(16, device="meta")  # what the module calculates itself is not there
        with pytest.raises(KeyError, match="m.inverse"):
            view.module(empty, prefix="m.")
        del other


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int64", "bool", "complex64"])
def test_types(name, dtype):
    dtype = getattr(torch, dtype)
    whole = torch.randint(0, 2, (6, 10)).to(torch.float32).to(dtype)
    with vault.Vault(name) as store:
        with store.draft() as draft:
            draft.put("whole", whole)
            draft.put("turned", whole.t())  # not contiguous
            draft.put("scalar", whole[0, 0])
            draft.put("empty", whole[:0])
        with store.attach() as view:
            for key, tensor in (("whole", whole), ("turned", whole.t()), ("scalar", whole[0, 0]), ("empty", whole[:0])):
                for found in (view[key].torch(), torch.from_dlpack(view[key])):
                    assert found.dtype == dtype and found.shape == tensor.shape, key
                    assert torch.equal(found.to(torch.complex64), tensor.to(torch.complex64)), key
                    del found


def test_what_cannot_be_kept(name):
    with vault.Vault(name) as store, store.draft() as draft:
        for wrong in (torch.empty(3, device="meta"), torch.eye(3).to_sparse(), torch.zeros(2, dtype=torch.complex128)):
            with pytest.raises(TypeError, match="no tensor that a vault can keep"):
                draft.put("wrong", wrong)
        with torch.device("meta"):
            with pytest.raises(TypeError, match="'(embed.weight|inverse)'"):
                draft.put_module(Model())
        draft.put("f6", b"abc", note=b'{"dtype": "F6_E2M3", "shape": [4]}')
        draft.put("lies", b"abc", note=b'{"dtype": "F32", "shape": [4]}')
        draft.put("plain", bytearray(b"abc"))
    with vault.Vault(name) as store, store.attach() as view:
        assert list(view) == ["f6", "lies", "plain"]
        with pytest.raises(TypeError, match="F6_E2M3"):
            view["f6"].torch()
        with pytest.raises(ValueError, match="16 bytes"):
            view["lies"].torch()
        assert view["plain"].torch().tolist() == list(b"abc")


def test_a_tensor_of_a_gpu(name):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    tensor = torch.arange(100, dtype=torch.float32, device="cuda")
    with vault.Vault(name) as store:
        with store.draft() as draft:
            draft.put("gpu", tensor)
        with store.attach() as view:
            assert torch.equal(view["gpu"].torch(), tensor.cpu())


def test_errors_are_those_of_umf(name):
    with pytest.raises(umf.Error):
        vault.Vault(name).attach()
