/*
 * Common parts of the software drivers: calls that fail on demand,
 * memory with a limit and a file behind it, ranges of addresses, and queued work. A driver's lock
 * is held around all of it.
 */
#ifndef UMF_TEST_FAKES_DRIVER_H
#define UMF_TEST_FAKES_DRIVER_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace driver {

// Handles that are dead stay objects, so that their use is noticed; they are no leaks.
template <typename T> T *kept(T *made) {
    static auto *all = new std::vector<void *>;
    all->push_back(made);
    return made;
}

// --- failures on demand --------------------------------------------------------------------------

// Counts a call that a test may have chosen; true: it is the one that has to fail.
template <typename Control> bool has_to_fail(Control &control) {
    if (control.fail_at == 0) {
        return false;
    }
    control.fail_at -= control.fail_at > 0;
    if (control.fail_at > 0) {
        return false;
    }
    control.fail_at = control.fail_on ? -1 : 0;
    return true;
}

// --- physical memory -----------------------------------------------------------------------------

// Counts `size` bytes as used; false: there are not so many.
inline bool take(size_t size, size_t limit, size_t *used) {
    if (size > limit - std::min(limit, *used)) {
        return false;
    }
    *used += size;
    return true;
}

// Of one device; its peak follows.
template <typename Control> bool take_of_device(Control &control, int device, size_t size) {
    if (!take(size, control.device_memory[device], &control.used[device])) {
        return false;
    }
    control.peak[device] = std::max(control.peak[device], control.used[device]);
    return true;
}

// An anonymous file, so that another process can open it; -1: there is none.
inline int make_file(const char *name, size_t size) {
    int fd = memfd_create(name, MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, static_cast<off_t>(size)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

inline char *map_file(int fd, size_t size) {
    void *base =
        fd < 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return base == MAP_FAILED ? nullptr : static_cast<char *>(base);
}

// --- addresses -----------------------------------------------------------------------------------

inline size_t round_up(size_t size, size_t unit) {
    return (size + unit - 1) / unit * unit;
}

inline bool overlaps(uintptr_t a, size_t a_size, uintptr_t b, size_t b_size) {
    return a < b + b_size && b < a + a_size;
}

// Addresses with nothing behind them; NULL: there are none.
inline char *reserve(size_t size, size_t alignment) {
    size_t room = size + alignment;
    if (room < size) {
        return nullptr;
    }
    void *raw = mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        return nullptr;
    }
    uintptr_t start = reinterpret_cast<uintptr_t>(raw);
    uintptr_t base = round_up(start, alignment);
    if (base > start) {
        munmap(raw, base - start);
    }
    munmap(reinterpret_cast<void *>(base + size), start + room - base - size);
    return reinterpret_cast<char *>(base);
}

// Unmaps the memory; the addresses stay reserved.
inline void unmap_reserved(uintptr_t address, size_t size) {
    mmap(reinterpret_cast<void *>(address), size, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// --- maps from an address to what begins there and has a size ------------------------------------

// The entry that holds all of a range; end() if there is none.
template <typename Map> typename Map::iterator holding(Map &map, uintptr_t address, size_t size) {
    auto at = map.upper_bound(address);
    if (at == map.begin()) {
        return map.end();
    }
    --at;
    return address + size <= at->first + at->second.size ? at : map.end();
}

template <typename Map> bool any_overlaps(const Map &map, uintptr_t address, size_t size) {
    return std::any_of(map.begin(), map.end(), [=](const auto &entry) {
        return overlaps(entry.first, entry.second.size, address, size);
    });
}

// Whole entries from `address` on that fill `size` bytes without a gap.
template <typename Map> bool is_run(const Map &map, uintptr_t address, size_t size) {
    while (size > 0) {
        auto at = map.find(address);
        if (at == map.end() || at->second.size > size) {
            return false;
        }
        address += at->second.size;
        size -= at->second.size;
    }
    return true;
}

// --- queued work: it reads and writes `size` bytes each, 0: none ---------------------------------

template <typename Streams>
bool is_used_by_queued_work(const Streams &streams, uintptr_t base, size_t size) {
    for (const auto *stream : streams) {
        for (const auto &work : stream->queue) {
            if ((work.reads && overlaps(work.reads, work.size, base, size)) ||
                (work.writes && overlaps(work.writes, work.size, base, size))) {
                return true;
            }
        }
    }
    return false;
}

// Streams wait for events of others, so all are run until nothing moves. `run_one` does one piece
// of a stream's work; false: there is none that can be done.
template <typename Streams, typename RunOne>
void run_until_idle(const Streams &streams, RunOne &&run_one) {
    for (bool moved = true; moved;) {
        moved = false;
        for (auto *stream : streams) {
            while (run_one(stream)) {
                moved = true;
            }
        }
    }
}

} // namespace driver

#endif
