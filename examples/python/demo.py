"""Two processes work on one NumPy array; then a pool gives its memory back and gets it again."""

import multiprocessing

import umf


def double(buffer: umf.Buffer) -> None:
    buffer.numpy("float64")[:] *= 2


def share() -> None:
    with umf.Pool("disjoint", provider="os:visibility=shared") as pool:
        buffer = pool.allocate(8 << 20)
        buffer.numpy("float64")[:] = 21
        child = multiprocessing.get_context("spawn").Process(target=double, args=(buffer,))
        child.start()
        child.join()
        print("the other process left", set(buffer.numpy("float64").tolist()))
        assert (buffer.numpy("float64") == 42).all()
        buffer.free()


def sleep() -> None:
    with umf.Pool("disjoint", provider="linux_vmm") as pool:
        buffer = pool.allocate(64 << 20)
        umf.fill(buffer, 7)
        print("suspended:", umf.suspend(pool))
        print("meanwhile:", pool.residency())
        print("resumed:  ", umf.resume(pool))
        assert set(bytes(buffer)) == {7}


if __name__ == "__main__":
    share()
    sleep()
