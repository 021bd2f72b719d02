/*
 * Faults: makes the n-th call of the system or of the metadata arena fail, once or for good.
 *
 *     for (fault::Nth nth; nth.next();) { ... code under test ... }
 *
 * runs the body with the 1st, 2nd, ... call failing, until a run makes fewer calls than that.
 */
#ifndef UMF_TEST_FAULT_H
#define UMF_TEST_FAULT_H

#include <atomic>
#include <cerrno>
#include <cstring>

extern "C" {
#include "system/os.h"
}

namespace fault {

inline int target, error;
inline std::atomic<int> seen{0}; /* a broker's thread calls the system, too */
inline const char *only;
inline bool stays; /* all after it fail, too */

inline int hook(const char *call) {
    if (only && strcmp(call, only) != 0) {
        return 0;
    }
    const int now = ++seen;
    return now == target || (stays && now > target) ? error : 0;
}

/* Calls of that name only, or of any name but unmap and close, after which no cleanup is possible,
 * and the periodic check of a broker's thread. */
inline int hook_but_release(const char *call) {
    bool releases = strcmp(call, "unmap") == 0 || strcmp(call, "close") == 0;
    return releases || strcmp(call, "is_last_thread") == 0 ? 0 : hook(call);
}

class Nth {
  public:
    explicit Nth(const char *call = nullptr, int errnum = ENOMEM, bool is_for_good = false) {
        only = call;
        error = errnum;
        stays = is_for_good;
        target = 0;
    }
    ~Nth() {
        off();
    }
    /* Arms the next fault. false: the last run did not reach its fault. */
    bool next() {
        off();
        if (target > 0 && seen < target) {
            return false;
        }
        target++;
        seen = 0;
        umf_os_set_fault(only ? hook : hook_but_release);
        return true;
    }
    /* Whether the fault of this run has happened. */
    bool hit() const {
        return seen >= target;
    }
    void off() const {
        umf_os_set_fault(nullptr);
    }
    int runs() const {
        return target;
    }
};

} // namespace fault

#endif
