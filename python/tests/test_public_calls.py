"""Every public call with arguments made by chance: the names are those of the package, so a new one is called, too."""

import inspect
import io
import os

import pytest
from helpers import scaled
from test_fuzz import EXPECTED, VALUES

import umf

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given, settings, strategies  # noqa: E402

LEFT_OUT = {
    "Job.__await__": "it needs a loop of asyncio, and takes no argument: test_suspend.py awaits jobs",
}

# Made by the compiler of classes and by NamedTuple.
MACHINERY = {
    "__annotations__", "__dict__", "__doc__", "__getnewargs__", "__match_args__", "__module__", "__new__",
    "__orig_bases__", "__parameters__", "__slots__", "__weakref__",
}  # fmt: skip

# A number is an address of memory, which nothing checks: the position and the name of such arguments.
ADDRESSES = {
    "copy": ((0, "to"), (1, "source")),
    "fill": ((0, "to"),),
    "Buffer.copy_from": ((0, "source"),),
    "Buffer.copy_to": ((0, "target"),),
}


def members(kind):
    """Public names of a class, and special ones, that this package defines."""
    own = [one for one in kind.__mro__ if one.__module__.startswith("umf")]
    for name in sorted({name for one in own for name in vars(one)} - MACHINERY):
        if name.startswith("__") or not name.startswith("_") or name == "_repr_html_":
            yield name


def public_names():
    names = []
    for name in umf.__all__:
        names.append(name)
        if inspect.isclass(getattr(umf, name)):
            names += [f"{name}.{one}" for one in members(getattr(umf, name))]
    return names


class Rig:
    """An object of each class, made on first use, and ended with the rig."""

    def __init__(self):
        self._pool = umf.Pool("disjoint over linux_vmm")
        self._pool.set_policy("host")
        self._buffer = self._pool.allocate(64)
        self._ends = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for end in reversed(self._ends):
            try:
                end()
            except EXPECTED:  # the call ended it
                pass
        umf.set_default_pool(None)
        self._pool.close()

    def pool(self):
        return self._pool

    def buffer(self):
        return self._buffer

    def of(self, kind):
        if issubclass(kind, tuple):
            return kind(*("os" if name == "provider" else b"x" if name == "data" else 1 for name in kind._fields))
        if issubclass(kind, umf.Error):
            return kind("it failed")
        return getattr(self, kind.__name__.lower(), kind)()

    def provider(self):
        return umf.Provider("os")

    def counters(self):
        return umf.counting(self._pool)

    def job(self):
        return umf.resume_async(self._pool)

    def memoryhook(self):
        made = umf.MemoryHook()
        self._ends.append(lambda: made.__exit__(None, None, None))
        return made

    def outofmemorycallback(self):
        return self.ended(umf.on_out_of_memory(lambda pool, nbytes: False))

    def profiler(self):
        return umf.Profiler(self._pool)

    def recording(self):
        return self.ended(umf.record())

    def ended(self, made):
        """What changes the process is undone after the call."""
        for name in ("remove", "stop"):
            if hasattr(made, name):
                self._ends.append(getattr(made, name))
        return made


class Ours:
    """Stands for an object of the rig among the arguments."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"<the {self.name}>"


OURS = [Ours("pool"), Ours("buffer"), [Ours("pool")], io.StringIO, "os", "linux_vmm", "proxy", "disjoint over os"]
ANY = strategies.one_of(VALUES, strategies.sampled_from(OURS))


def parameters(call):
    try:
        return inspect.signature(call).parameters
    except ValueError:  # of a slot in C
        return None


def fitting(values, known):
    """As many as the call takes by position, if it says so."""
    if known is None or any(one.kind == one.VAR_POSITIONAL for one in known.values()):
        return values
    by_position = [one for one in known.values() if one.kind <= one.POSITIONAL_OR_KEYWORD]
    needed = sum(one.default is one.empty for one in by_position)
    return (values * needed)[: max(needed, len(values))][: len(by_position)]


def keywords():
    """Names of arguments, of any call."""
    found = set()
    for name in public_names():
        of = umf
        for part in name.split("."):
            of = getattr(of, part)
        if callable(of):
            found.update(parameters(of) or {})
    return sorted(found - {"self", "args", "kwargs"})


def stands(rig, value):
    if isinstance(value, list):
        return [stands(rig, one) for one in value]
    return getattr(rig, value.name)() if isinstance(value, Ours) else value


def call(rig, name, positional, named, fits):
    kind, _, member = name.rpartition(".")
    of = rig.of(getattr(umf, kind)) if kind else umf
    function = getattr(of, member)
    if not callable(function):
        setattr(of, member, positional[0])  # it was read; nothing is set
        return
    known = parameters(function)
    given = {key: stands(rig, value) for key, value in named.items() if key in (known or {})}
    listed = [stands(rig, value) for value in (fitting(positional, known) if fits else positional)]
    for position, key in ADDRESSES.get(name, ()):
        if isinstance(given.get(key), int):
            given[key] = rig.buffer()
        if position < len(listed) and isinstance(listed[position], int):
            listed[position] = rig.buffer()
    made = rig.ended(function(*listed, **given))
    if name in ("using", "capturing", "counting"):
        with made:
            pass


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """Names of files are made by chance, too."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("files"))
    yield
    os.chdir(before)


NAMES = [name for name in public_names() if name not in LEFT_OUT]


@settings(max_examples=scaled(200), deadline=None)
@given(
    positional=strategies.lists(ANY, min_size=1, max_size=4),
    named=strategies.dictionaries(strategies.sampled_from(keywords()), ANY, max_size=2),
    fits=strategies.booleans(),
)
def test_every_public_call_takes_any_arguments(elsewhere, positional, named, fits):
    for name in NAMES:
        with Rig() as rig:
            try:
                call(rig, name, positional, named, fits)
            except EXPECTED:
                pass
            except BaseException as error:
                raise AssertionError(f"umf.{name}, {positional}, {named}: {error!r}") from error


def test_the_rig_has_an_object_of_every_class():
    for kind in [getattr(umf, name) for name in umf.__all__]:
        if inspect.isclass(kind):
            with Rig() as rig:
                assert isinstance(rig.of(kind), kind)


def test_no_name_is_left_out_without_need():
    assert set(LEFT_OUT) <= set(public_names())
    assert len(NAMES) > 150 and "Pool.allocate" in NAMES and "Buffer.__getitem__" in NAMES
