/*
 * The oracle of the software drivers: it tracks which bytes each piece of queued work reads and
 * writes, and which work comes after which, and keeps a fault for each use that no order allows.
 *
 * The order is the one that the program enforced, not the one that happened: a vector clock for
 * each lane (a stream, or a branch of a graph), one for each point that a caller keeps, and one for
 * the host. So a fault is found in every schedule. Work comes after the earlier work of its lane,
 * after the points that its lane was ordered behind, and after all that the host knew to have
 * passed when it queued the work. All threads of the host count as one: what orders them is not
 * seen here, and is what ThreadSanitizer looks at.
 *
 * A driver's lock is held around all of it.
 */
#ifndef UMF_TEST_FAKES_ORACLE_H
#define UMF_TEST_FAKES_ORACLE_H

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace oracle {

// How many pieces of work of each lane have passed. Lanes that are not in it: none.
class Clock {
  public:
    uint64_t of(size_t lane) const {
        return lane < counts.size() ? counts[lane] : 0;
    }
    void raise(size_t lane, uint64_t count);
    void join(const Clock &other);

  private:
    std::vector<uint64_t> counts;
};

struct Use {
    uintptr_t at;
    size_t size;
    bool writes;
};

using Uses = std::vector<Use>;

// A block that was handed out, and the how-manieth.
struct Owner {
    uintptr_t at;
    uint64_t number;
};

class Oracle {
  public:
    // --- lanes -----------------------------------------------------------------------------------

    size_t add_lane(const std::string &name);
    // Nothing more is queued there. The lane is used again when the host has seen it idle.
    void drop_lane(size_t lane);
    // The host has seen all work queued there complete.
    bool is_idle(size_t lane) const {
        return host.of(lane) == lanes[lane].queued;
    }
    // The point after all work queued on the lane now, and the point up to which the host has seen
    // it complete.
    Clock point(size_t lane) const;
    // Work queued there from now on comes after the point.
    void order(size_t lane, const Clock &point);
    // The host has seen the point complete.
    void host_knows(const Clock &point) {
        host.join(point);
    }
    const Clock &of_host() const {
        return host;
    }

    // --- work ------------------------------------------------------------------------------------

    void queue(size_t lane, const std::string &name, const Uses &uses);
    // The blocks that hold some of these bytes.
    std::vector<Owner> owners(const Uses &uses) const;
    // Work that was captured while `then` were the owners is queued.
    void queue_captured(size_t lane, const std::string &name, const Uses &uses,
                        const std::vector<Owner> &then);

    // --- memory ----------------------------------------------------------------------------------

    // The bytes become unreachable, by a call that does not wait: the host must have seen that all
    // work on them has passed. Returns whether it does.
    bool remove(const char *call, uintptr_t at, size_t size);
    // The same, by a call that waits.
    void forget(uintptr_t at, size_t size);

    // --- memory at several addresses -------------------------------------------------------------

    // Memory that is reachable at several addresses has a name as well, a range of addresses that
    // no program has. What uses an address of it uses the name.

    // It is reachable at `at`, by this name.
    void name(uintptr_t at, size_t size, uintptr_t name);
    // The same, of memory that had no name so far: its history and its blocks are those of `at`.
    void name_first(uintptr_t at, size_t size, uintptr_t name);
    // It is not reachable there any more. No block may be there, unless its allocator takes memory
    // away that it brings back before the next use.
    void unname(uintptr_t at, size_t size);
    void takes_away(bool yes) {
        is_away = yes;
    }

    // --- blocks of an allocator ------------------------------------------------------------------

    // An allocator hands a block out, for use after a point: that of the stream which may use it,
    // or the host's own, where anybody may.
    void hand_out(uintptr_t at, size_t size, const Clock &after, const std::string &to);
    void give_back(uintptr_t at, size_t size);

    // --- faults ----------------------------------------------------------------------------------

    void fault(const std::string &text);
    const std::vector<std::string> &faults() const {
        return found;
    }

  private:
    struct Work {
        std::string name;
        size_t lane;
        uint64_t number;
        std::string lane_name;
    };
    using Access = std::shared_ptr<const Work>;
    // Bytes with the same history. Accesses that a later one comes after are left out.
    struct Span {
        size_t size;
        Access writer;
        std::vector<Access> readers;
    };
    struct Block {
        size_t size;
        uint64_t number;
        std::string to;
    };
    struct Lane {
        std::string name;
        Clock clock;
        uint64_t queued;
        bool is_dropped;
    };

    Clock host;
    std::vector<Lane> lanes;
    std::map<uintptr_t, Span> spans;
    std::map<uintptr_t, Block> blocks;
    struct Name {
        size_t size;
        uintptr_t name;
    };
    std::map<uintptr_t, Name> names;
    std::vector<std::string> found;
    uint64_t handed_out = 0;
    bool is_away = false;
    size_t sweep_at = 4096;

    static bool is_passed(const Access &access, const Clock &clock);
    static std::string text(const Access &access, const char *does);
    // The names of used objects.
    Uses named(const Use &use) const;
    void check_owners(const Use &use, const std::string &to);
    void check_open(const Use &use, const Clock &after, const std::string &to);
    void split(uintptr_t at);
    const Access *open_use(const Span &span, const Clock &clock, bool with_readers) const;
    const Access *find_open(uintptr_t at, size_t size, const Clock &clock, bool with_readers,
                            Use *where) const;
    void touch(const Use &use, const Access &work, const Clock &clock);
    void write(const Use &use, const Access &work);
    void read(const Use &use, const Access &work, const Clock &clock);
    void sweep();
};

} // namespace oracle

#endif
