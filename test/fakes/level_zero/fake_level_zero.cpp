// The software Level Zero driver; fake_level_zero.h says what it does. Every function takes one
// lock.

#include "fake_level_zero.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <type_traits>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>

#include "../driver.h"

namespace {

using driver::any_overlaps;
using driver::holding;
using driver::is_run;
using driver::kept;
using driver::make_file;
using driver::map_file;
using driver::reserve;
using driver::round_up;
using driver::unmap_reserved;

struct Stream;

struct Work {
    std::function<bool(Stream *)> run; // false: it waits for something
    bool is_barrier = false;           // after all before it, and before all after it
    uintptr_t reads = 0, writes = 0;   // `size` bytes each; 0: none
    size_t size = 0;
};

struct Stream { // a queue or an immediate list
    ze_context_handle_t context;
    ze_device_handle_t device;
    bool is_synchronous;
    std::deque<Work> queue;
};

} // namespace

// The driver's own types, which the header leaves open.
struct _ze_driver_handle_t {
    int index;
};

struct _ze_device_handle_t {
    int index, driver;
};

struct _ze_context_handle_t {
    int driver;
    long objects; // alive in it
};

struct _ze_command_queue_handle_t {
    Stream stream;
};

struct _ze_command_list_handle_t {
    Stream *immediate; // NULL: a regular list
    ze_context_handle_t context;
    std::vector<Work> recorded;
    bool is_closed;
};

struct _ze_fence_handle_t {
    ze_command_queue_handle_t queue;
    bool is_signaled;
};

struct _ze_event_pool_handle_t {
    ze_context_handle_t context;
    std::vector<bool> taken;
};

struct _ze_event_handle_t {
    ze_event_pool_handle_t pool;
    uint32_t index;
    bool is_signaled;
};

struct _ze_physical_mem_handle_t {
    size_t size;
    ze_context_handle_t context;
    int device;
    int fd;
    char *alias; // the driver's own mapping
    long mappings;
};

namespace {

struct Memory {
    size_t size;   // as requested
    char *base;    // of its mapping
    size_t mapped; // size of that
    char *alias;   // the same memory, for the driver
    ze_memory_type_t type;
    ze_context_handle_t context;
    int device; // -1: none
    int fd;
    int descriptor; // for IPC, -1: none yet
    int exported;   // the same if the driver keeps it
    uint64_t id;
    uint64_t page_size;
    bool is_imported;
    bool is_exportable;
    bool is_deferred; // freed, but work still uses it
    std::set<int> residents;
};

struct Mapping {
    size_t size;
    ze_physical_mem_handle_t physical;
    size_t offset;
    ze_memory_access_attribute_t access;
    std::set<int> residents;
};

struct Reservation {
    size_t size;
    ze_context_handle_t context;
};

struct IpcHandle { // fits into ze_ipc_mem_handle_t; the descriptor comes first, as in Intel's
                   // driver
    int32_t fd;
    uint32_t type;
    uint64_t magic, offset, size;
};
constexpr uint64_t ipc_magic = 0x756d662066616b65;
static_assert(sizeof(IpcHandle) <= sizeof(ze_ipc_mem_handle_t), "an IPC handle has 64 bytes");

struct CacheLine { // ze_device_cache_line_size_ext_t
    uint32_t stype;
    const void *next;
    size_t size;
};

struct State {
    fake_ze_t control{};
    uint64_t ids = 0;
    std::map<uintptr_t, Memory> memory;
    std::map<uintptr_t, Reservation> reservations;
    std::map<uintptr_t, Mapping> mappings;
    std::set<ze_context_handle_t> contexts;
    std::set<ze_physical_mem_handle_t> physicals;
    std::set<ze_command_queue_handle_t> queues;
    std::set<ze_command_list_handle_t> lists;
    std::set<ze_fence_handle_t> fences;
    std::set<ze_event_pool_handle_t> pools;
    std::set<ze_event_handle_t> events;
    std::set<Stream *> streams;
};

_ze_driver_handle_t all_drivers[FAKE_ZE_DRIVERS];
_ze_device_handle_t all_devices[FAKE_ZE_ALL_DEVICES];
_ze_device_handle_t all_parts[FAKE_ZE_ALL_DEVICES]; // their sub-devices, with the same memory

std::recursive_mutex lock;
State *state;
pid_t loaded_in;

State *fresh() {
    State *made = kept(new State);
    fake_ze_t &control = made->control;
    control.drivers = 1;
    control.devices = 2;
    control.memories = 1;
    control.host_memory = size_t{4} << 30;
    control.max_alloc_size = size_t{256} << 20;
    control.page_size = size_t{64} << 10;
    control.granularity = size_t{2} << 20;
    control.cache_line = 64;
    control.peers = 1;
    control.waits = 1;
    control.fail_function = FAKE_ZE_ANY;
    std::fill_n(control.types, FAKE_ZE_ALL_DEVICES, int{ZE_DEVICE_TYPE_GPU});
    std::fill_n(control.device_memory, FAKE_ZE_ALL_DEVICES, size_t{1} << 30);
    for (int i = 0; i < FAKE_ZE_DRIVERS; i++) {
        all_drivers[i].index = i;
    }
    for (int i = 0; i < FAKE_ZE_ALL_DEVICES; i++) {
        all_devices[i] = _ze_device_handle_t{i, i / FAKE_ZE_DEVICES};
        all_parts[i] = all_devices[i];
    }
    loaded_in = getpid();
    return made;
}

State &get() {
    if (!state) {
        state = fresh();
    }
    return *state;
}

// --- what calls begin and end with ---------------------------------------------------------------

// Every call is counted, and may have to fail.
ze_result_t enter(int function) {
    fake_ze_t &control = get().control;
    control.calls[function]++;
    if (control.ordered < FAKE_ZE_ORDER) {
        control.order[control.ordered++] = function;
    }
    bool may_fail = control.fail_function == FAKE_ZE_ANY || control.fail_function == function;
    if (may_fail && driver::has_to_fail(control)) {
        control.lost = control.fail_stays ? control.fail_with : control.lost;
        return static_cast<ze_result_t>(control.fail_with);
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t lost() {
    return static_cast<ze_result_t>(get().control.lost);
}

#define NEED(condition)                                                                            \
    if (ze_result_t needed = (condition)) {                                                        \
        return needed;                                                                             \
    }

// For what works on a lost device, too.
#define ENTER_ALWAYS(function)                                                                     \
    std::lock_guard<std::recursive_mutex> guard(lock);                                             \
    NEED(enter(FAKE_##function))

#define ENTER(function)                                                                            \
    ENTER_ALWAYS(function)                                                                         \
    NEED(lost())

// For what gives back: that works on a lost device, too, and ends with lost().
#define ENTER_RELEASE(function)                                                                    \
    std::lock_guard<std::recursive_mutex> guard(lock);                                             \
    if (ze_result_t entered = enter(FAKE_##function)) {                                            \
        get().control.refused++;                                                                   \
        return entered;                                                                            \
    }

ze_result_t pointer(const void *ptr) {
    return ptr ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_NULL_POINTER;
}

ze_result_t is_size(size_t size) {
    return size ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

ze_result_t wrong_handle() {
    get().control.wrong_handles++;
    return ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

template <typename T> ze_result_t living(const std::set<T *> &all, T *handle) {
    if (!handle) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    return all.count(handle) ? ZE_RESULT_SUCCESS : wrong_handle();
}

ze_result_t in(ze_context_handle_t context) {
    return living(get().contexts, context);
}

ze_result_t is_driver(ze_driver_handle_t driver) {
    if (!driver) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    for (int i = 0; i < get().control.drivers; i++) {
        if (driver == &all_drivers[i]) {
            return ZE_RESULT_SUCCESS;
        }
    }
    return wrong_handle();
}

ze_result_t is_device(ze_device_handle_t device) {
    if (!device) {
        return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
    }
    for (int i = 0; i < get().control.drivers * FAKE_ZE_DEVICES; i++) {
        bool is_it = device == &all_devices[i] || (get().control.parts && device == &all_parts[i]);
        if (is_it && i % FAKE_ZE_DEVICES < get().control.devices) {
            return ZE_RESULT_SUCCESS;
        }
    }
    return wrong_handle();
}

ze_result_t in(ze_context_handle_t context, ze_device_handle_t device) {
    NEED(in(context))
    NEED(is_device(device))
    return device->driver == context->driver ? ZE_RESULT_SUCCESS : wrong_handle();
}

// The usual way of lists: a count of 0 requests the number, another is room, lowered to what is
// there.
template <typename Fill>
ze_result_t enumerate(uint32_t there, uint32_t *count, const void *room, Fill fill) {
    NEED(pointer(count))
    if (*count == 0 || *count > there) {
        bool is_query = *count == 0;
        *count = there;
        if (is_query) {
            return ZE_RESULT_SUCCESS;
        }
    }
    for (uint32_t i = 0; room && i < *count; i++) {
        fill(i);
    }
    return ZE_RESULT_SUCCESS;
}

template <typename T>
T *born(std::set<T *> &all, long &count, ze_context_handle_t context, T *made) {
    all.insert(kept(made));
    count++;
    if (context) {
        context->objects++;
    }
    return made;
}

template <typename T>
void gone(std::set<T *> &all, long &count, ze_context_handle_t context, T *was) {
    all.erase(was);
    count--;
    if (context) {
        context->objects--;
    }
}

// --- mappings ------------------------------------------------------------------------------------

bool map_at(void *base, size_t size, int protection, int fd, size_t offset) {
    return mmap(base, size, protection, MAP_SHARED | MAP_FIXED, fd, static_cast<off_t>(offset)) !=
           MAP_FAILED;
}

int protection_of(ze_memory_type_t type) {
    bool is_closed = type == ZE_MEMORY_TYPE_DEVICE && !get().control.touchable;
    return is_closed ? PROT_NONE : PROT_READ | PROT_WRITE;
}

Memory *memory_at(const void *ptr, size_t size = 1) {
    auto at = holding(get().memory, reinterpret_cast<uintptr_t>(ptr), size);
    return at == get().memory.end() || at->second.is_deferred ? nullptr : &at->second;
}

// --- queued work ---------------------------------------------------------------------------------

bool is_used_by_queued_work(uintptr_t base, size_t size) {
    return driver::is_used_by_queued_work(get().streams, base, size);
}

void note_removal(uintptr_t base, size_t size) {
    if (is_used_by_queued_work(base, size)) {
        get().control.unordered_frees++;
    }
}

bool can_reach(const Stream *stream, int device) {
    return device < 0 || device == stream->device->index ||
           (get().control.peers && device / FAKE_ZE_DEVICES == stream->device->driver);
}

// The driver's own pointer to the memory at `address`, and how much of `size` is behind it; NULL if
// the device would fault. Unknown memory is plain memory of the host.
char *reach(const Stream *stream, uintptr_t address, size_t size, bool writes, size_t *part) {
    State &s = get();
    *part = size;
    auto memory = holding(s.memory, address, 1);
    if (memory != s.memory.end()) {
        const Memory &m = memory->second;
        size_t into = address - reinterpret_cast<uintptr_t>(m.base);
        bool is_inside = address + size <= memory->first + m.size;
        return is_inside && can_reach(stream, m.device) ? m.alias + into : nullptr;
    }
    auto mapping = holding(s.mappings, address, 1);
    if (mapping != s.mappings.end()) {
        const Mapping &m = mapping->second;
        size_t into = address - mapping->first;
        *part = std::min(size, m.size - into);
        bool may = writes ? m.access == ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE
                          : m.access != ZE_MEMORY_ACCESS_ATTRIBUTE_NONE;
        return may && can_reach(stream, m.physical->device) ? m.physical->alias + m.offset + into
                                                            : nullptr;
    }
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    uintptr_t from = address / page * page;
    bool is_there = holding(s.reservations, address, 1) == s.reservations.end() &&
                    msync(reinterpret_cast<void *>(from), address + size - from, MS_ASYNC) == 0;
    return is_there ? reinterpret_cast<char *>(address) : nullptr;
}

void fault() {
    get().control.illegal_accesses++;
    get().control.lost = ZE_RESULT_ERROR_DEVICE_LOST;
}

void copy_now(const Stream *stream, uintptr_t to, uintptr_t from, size_t size) {
    while (size > 0) {
        size_t readable, writable;
        char *source = reach(stream, from, size, false, &readable);
        char *target = reach(stream, to, size, true, &writable);
        if (!source || !target) {
            return fault();
        }
        size_t part = std::min(readable, writable);
        memmove(target, source, part);
        to += part;
        from += part;
        size -= part;
    }
}

void fill_now(const Stream *stream, uintptr_t to, const std::vector<char> &pattern, size_t size) {
    for (size_t at = 0; at < size;) {
        size_t part;
        char *target = reach(stream, to + at, size - at, true, &part);
        if (!target) {
            return fault();
        }
        for (size_t i = 0; pattern.size() > 1 && i < part; i++) {
            target[i] = pattern[(at + i) % pattern.size()];
        }
        if (pattern.size() == 1) {
            memset(target, pattern[0], part);
        }
        at += part;
    }
}

void remove_memory(uintptr_t address);

void sweep_deferred() {
    std::vector<uintptr_t> ready;
    for (const auto &[address, memory] : get().memory) {
        if (memory.is_deferred && !is_used_by_queued_work(address, memory.size)) {
            ready.push_back(address);
        }
    }
    for (uintptr_t address : ready) {
        remove_memory(address);
    }
}

// Work between two barriers is done in any order: here the newest first, so that who needs an order
// and does not request it is noticed.
bool run_one(Stream *stream) {
    std::deque<Work> &queue = stream->queue;
    size_t end = 0;
    while (end < queue.size() && !queue[end].is_barrier) {
        end++;
    }
    if (end == 0 && !queue.empty()) {
        end = 1; // the barrier itself
    }
    for (size_t i = end; i > 0; i--) {
        if (queue[i - 1].run(stream)) {
            queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i - 1));
            sweep_deferred();
            return true;
        }
    }
    return false;
}

void run_all() {
    driver::run_until_idle(get().streams, run_one);
}

void run_a_little() {
    for (Stream *stream : get().streams) {
        run_one(stream);
    }
}

bool all_signaled(const std::vector<ze_event_handle_t> &events) {
    return std::all_of(events.begin(), events.end(), [](ze_event_handle_t event) {
        return !get().events.count(event) || event->is_signaled;
    });
}

// Puts work on a list: it waits for events, does `what` and signals an event.
ze_result_t append(ze_command_list_handle_t list, Work work, std::function<void(Stream *)> what,
                   ze_event_handle_t signal, uint32_t count, ze_event_handle_t *waits) {
    NEED(living(get().lists, list))
    if (count > 0 && !waits) {
        return ZE_RESULT_ERROR_INVALID_SIZE;
    }
    if (list->is_closed) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    std::vector<ze_event_handle_t> events(waits, waits + count);
    for (ze_event_handle_t event : events) {
        NEED(living(get().events, event))
    }
    if (signal) {
        NEED(living(get().events, signal))
    }
    work.run = [=](Stream *stream) {
        if (!all_signaled(events)) {
            return false;
        }
        what(stream);
        if (signal && get().events.count(signal)) {
            signal->is_signaled = true;
        }
        return true;
    };
    Stream *stream = list->immediate;
    if (!stream) {
        list->recorded.push_back(std::move(work));
        return ZE_RESULT_SUCCESS;
    }
    stream->queue.push_back(std::move(work));
    if (stream->is_synchronous) {
        run_all();
        return stream->queue.empty() ? lost() : ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT;
    }
    return ZE_RESULT_SUCCESS;
}

// Waits, or looks once if there is no time to wait.
ze_result_t wait_for(uint64_t timeout, const std::function<bool()> &is_done) {
    if (!is_done()) {
        if (timeout == 0) {
            run_a_little();
            return ZE_RESULT_NOT_READY; // as a device that has only just got it
        }
        run_all();
    }
    NEED(lost())
    return is_done() ? ZE_RESULT_SUCCESS : ZE_RESULT_NOT_READY;
}

// --- memory --------------------------------------------------------------------------------------

bool take(int device, size_t size) {
    fake_ze_t &control = get().control;
    return device < 0 ? driver::take(size, control.host_memory, &control.host_used)
                      : driver::take_of_device(control, device, size);
}

void give(int device, size_t size) {
    (device < 0 ? get().control.host_used : get().control.used[device]) -= size;
}

ze_result_t no_room(int device) {
    return device < 0 ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY : ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
}

// Maps `made.fd` twice, for everybody at `offset` beside an address of that alignment and for the
// driver, and makes it known.
ze_result_t add_memory(Memory made, size_t offset, size_t alignment, void **ptr) {
    made.base = reserve(made.mapped, alignment);
    made.alias = made.base ? map_file(made.fd, made.mapped) : nullptr;
    if (!made.alias || !map_at(made.base, made.mapped, protection_of(made.type), made.fd, 0)) {
        if (made.base) {
            munmap(made.base, made.mapped);
        }
        if (made.alias) {
            munmap(made.alias, made.mapped);
        }
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made.id = ++get().ids;
    made.descriptor = made.exported = -1;
    made.context->objects++;
    (made.is_imported ? get().control.imports : get().control.allocations)++;
    *ptr = made.base + offset;
    get().memory[reinterpret_cast<uintptr_t>(*ptr)] = made;
    return ZE_RESULT_SUCCESS;
}

bool is_same_file(int a, int b) {
    struct stat first, second;
    return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_ino == second.st_ino;
}

// A number that was closed by others is left alone: it may have a new owner.
void close_exported(const Memory &memory) {
    if (memory.exported >= 0 && is_same_file(memory.exported, memory.fd)) {
        close(memory.exported);
    } else if (memory.exported >= 0) {
        get().control.closed_by_others++;
    }
}

void remove_memory(uintptr_t address) {
    State &s = get();
    Memory memory = s.memory[address];
    s.memory.erase(address);
    munmap(memory.base, memory.mapped);
    munmap(memory.alias, memory.mapped);
    close_exported(memory);
    close(memory.fd);
    if (memory.descriptor >= 0) {
        close(memory.descriptor);
        s.control.descriptors--;
    }
    for (int device : memory.residents) {
        s.control.residents[device]--;
    }
    if (!memory.is_imported) {
        give(memory.device, memory.mapped);
    }
    (memory.is_imported ? s.control.imports : s.control.allocations)--;
    memory.context->objects--;
}

// The flags of the extensions of a descriptor; `import_fd` is the descriptor to import, if any.
void read_chain(const void *next, fake_ze_request_t *request, int *import_fd) {
    while (next) {
        ze_base_desc_t base;
        memcpy(&base, next, sizeof(base));
        if (base.stype == ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC) {
            request->relaxed =
                static_cast<const ze_relaxed_allocation_limits_exp_desc_t *>(next)->flags;
        } else if (base.stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_DESC) {
            request->exports = static_cast<const ze_external_memory_export_desc_t *>(next)->flags;
        } else if (base.stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_IMPORT_FD) {
            auto import = static_cast<const ze_external_memory_import_fd_t *>(next);
            request->imports = import->flags;
            *import_fd = import->fd;
        }
        next = base.pNext;
    }
}

size_t size_of_file(int fd) {
    struct stat status;
    return fstat(fd, &status) == 0 && status.st_size > 0 ? static_cast<size_t>(status.st_size) : 0;
}

ze_result_t check_request(const fake_ze_request_t &request) {
    NEED(is_size(request.size))
    if ((request.alignment & (request.alignment - 1)) != 0 || request.alignment > size_t{1} << 40) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    }
    if (request.size > get().control.max_alloc_size && !request.relaxed) {
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    }
    if (request.function != FAKE_zeMemAllocHost && request.ordinal >= get().control.memories) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return ZE_RESULT_SUCCESS;
}

ze_result_t import_memory(Memory made, const fake_ze_request_t &request, int fd, void **ptr) {
    if (!(request.imports & ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF)) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    }
    made.mapped = size_of_file(fd);
    made.fd = request.size <= made.mapped ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (made.fd < 0) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    made.is_imported = true;
    ze_result_t result = add_memory(made, 0, made.page_size, ptr);
    if (result != ZE_RESULT_SUCCESS) {
        close(made.fd);
    }
    return result;
}

ze_result_t alloc(ze_context_handle_t context, ze_device_handle_t device, ze_memory_type_t type,
                  const fake_ze_request_t &request, int import_fd, void **ptr) {
    fake_ze_t &control = get().control;
    control.last = request;
    NEED(pointer(ptr))
    NEED(check_request(request))
    size_t page = type == ZE_MEMORY_TYPE_HOST ? 4096 : control.page_size;
    Memory made{};
    made.size = request.size;
    made.type = type;
    made.context = context;
    made.device = device ? device->index : -1;
    made.page_size = page;
    made.is_exportable = request.exports != 0;
    if (request.imports) {
        return import_memory(made, request, import_fd, ptr);
    }
    size_t offset =
        control.cut && request.size < page ? std::max<size_t>(request.alignment, 64) : 0;
    offset = offset < page ? offset : 0;
    if (request.size > size_t{1} << 46) {
        return no_room(made.device);
    }
    made.mapped = round_up(request.size + offset, page);
    if (!take(made.device, made.mapped)) {
        return no_room(made.device);
    }
    made.fd = make_file("fake_level_zero", made.mapped);
    ze_result_t result = made.fd < 0
                             ? ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY
                             : add_memory(made, offset, std::max(request.alignment, page), ptr);
    if (result != ZE_RESULT_SUCCESS) {
        give(made.device, made.mapped);
        if (made.fd >= 0) {
            close(made.fd);
        }
    }
    return result;
}

// The allocation that begins there and belongs to the context.
ze_result_t begins(ze_context_handle_t context, const void *ptr, bool is_imported) {
    NEED(in(context))
    NEED(pointer(ptr))
    auto at = get().memory.find(reinterpret_cast<uintptr_t>(ptr));
    bool is_there = at != get().memory.end() && !at->second.is_deferred &&
                    at->second.context == context && (!is_imported || at->second.is_imported);
    return is_there ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

// --- virtual memory ------------------------------------------------------------------------------

// Small memory has smaller pages.
size_t granularity_of(size_t size) {
    size_t large = get().control.granularity;
    return size >= large ? large : std::min(large, get().control.page_size);
}

ze_result_t is_granular(const void *ptr, size_t size) {
    NEED(is_size(size))
    if (reinterpret_cast<uintptr_t>(ptr) % granularity_of(size) != 0) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    }
    return size % granularity_of(size) == 0 ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
}

void unmap(uintptr_t address, size_t size) {
    State &s = get();
    note_removal(address, size);
    unmap_reserved(address, size);
    for (uintptr_t end = address + size; address < end;) {
        auto at = s.mappings.find(address);
        address += at->second.size;
        at->second.physical->mappings--;
        at->second.physical->context->objects--;
        for (int device : at->second.residents) {
            s.control.residents[device]--;
        }
        s.mappings.erase(at);
        s.control.mappings--;
    }
}

ze_result_t protect(uintptr_t address, size_t size, ze_memory_access_attribute_t access) {
    if (access > ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    int protection = access == ZE_MEMORY_ACCESS_ATTRIBUTE_NONE       ? PROT_NONE
                     : access == ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY ? PROT_READ
                                                                     : PROT_READ | PROT_WRITE;
    mprotect(reinterpret_cast<void *>(address), size,
             protection & protection_of(ZE_MEMORY_TYPE_DEVICE));
    for (uintptr_t end = address + size; address < end;) {
        Mapping &mapping = get().mappings[address];
        mapping.access = access;
        address += mapping.size;
    }
    return ZE_RESULT_SUCCESS;
}

std::set<int> *residents_at(const void *ptr, size_t size) {
    if (Memory *memory = memory_at(ptr, size)) {
        return &memory->residents;
    }
    auto at = holding(get().mappings, reinterpret_cast<uintptr_t>(ptr), size);
    return at == get().mappings.end() ? nullptr : &at->second.residents;
}

long alive() {
    const fake_ze_t &c = get().control;
    return c.contexts + c.allocations + c.imports + c.reservations + c.physicals + c.mappings +
           c.queues + c.lists + c.fences + c.pools + c.events;
}

} // namespace

extern "C" {

fake_ze_t *fake_ze(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return &get().control;
}

void fake_ze_reset(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    state = fresh();
}

long fake_ze_alive(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return alive();
}

int fake_ze_is_resident(const void *ptr, int device) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    std::set<int> *residents = residents_at(ptr, 1);
    return residents && residents->count(device);
}

__attribute__((destructor)) static void report_leaks(void) {
    if (!state || getpid() != loaded_in || alive() + state->control.closed_by_others == 0) {
        return;
    }
    const fake_ze_t &c = state->control;
    fflush(nullptr);
    if (c.closed_by_others) {
        fprintf(stderr,
                "software Level Zero driver: %ld of its descriptors were closed by others\n",
                c.closed_by_others);
    }
    fprintf(stderr,
            "software Level Zero driver: alive at the end of process %d: %ld contexts, %ld "
            "allocations, %ld imports, %ld reservations, %ld physical memories, %ld mappings, %ld "
            "queues, %ld lists, %ld fences, %ld event pools, %ld events\n",
            static_cast<int>(getpid()), c.contexts, c.allocations, c.imports, c.reservations,
            c.physicals, c.mappings, c.queues, c.lists, c.fences, c.pools, c.events);
    _exit(1);
}

// --- drivers and devices -------------------------------------------------------------------------

static ze_result_t fake_zeInit(ze_init_flags_t flags) {
    ENTER_ALWAYS(zeInit)
    return flags > ZE_INIT_FLAG_GPU_ONLY * 2 + 1 ? ZE_RESULT_ERROR_INVALID_ENUMERATION
                                                 : ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeDriverGet(uint32_t *count, ze_driver_handle_t *drivers) {
    ENTER_ALWAYS(zeDriverGet)
    return enumerate(static_cast<uint32_t>(get().control.drivers), count, drivers,
                     [=](uint32_t i) { drivers[i] = &all_drivers[i]; });
}

static ze_result_t fake_zeDriverGetApiVersion(ze_driver_handle_t driver,
                                              ze_api_version_t *version) {
    ENTER_ALWAYS(zeDriverGetApiVersion)
    NEED(is_driver(driver))
    NEED(pointer(version))
    *version = ZE_API_VERSION_CURRENT;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeDriverGetProperties(ze_driver_handle_t driver,
                                              ze_driver_properties_t *properties) {
    ENTER_ALWAYS(zeDriverGetProperties)
    NEED(is_driver(driver))
    NEED(pointer(properties))
    properties->uuid = {};
    properties->uuid.id[0] = static_cast<uint8_t>(driver->index + 1);
    properties->driverVersion = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeDriverGetIpcProperties(ze_driver_handle_t driver,
                                                 ze_driver_ipc_properties_t *properties) {
    ENTER_ALWAYS(zeDriverGetIpcProperties)
    NEED(is_driver(driver))
    NEED(pointer(properties))
    properties->flags = ZE_IPC_PROPERTY_FLAG_MEMORY;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t
fake_zeDriverGetExtensionProperties(ze_driver_handle_t driver, uint32_t *count,
                                    ze_driver_extension_properties_t *extensions) {
    ENTER_ALWAYS(zeDriverGetExtensionProperties)
    NEED(is_driver(driver))
    static const char *const names[] = {ZE_RELAXED_ALLOCATION_LIMITS_EXP_NAME,
                                        "ZE_extension_driver_memory_free_policy",
                                        FAKE_ZE_CACHE_LINE_NAME};
    return enumerate(get().control.cache_line ? 3 : 2, count, extensions, [=](uint32_t i) {
        snprintf(extensions[i].name, sizeof(extensions[i].name), "%s", names[i]);
        extensions[i].version = ZE_MAKE_VERSION(1, 0);
    });
}

// An extension function of the driver, no function of the loader.
static ze_result_t fake_zeDeviceSynchronize(ze_device_handle_t device) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    NEED(is_device(device))
    get().control.device_waits++;
    driver::run_until_idle(get().streams, [=](Stream *stream) {
        return stream->device->index == device->index && run_one(stream);
    });
    return lost();
}

static ze_result_t fake_zeDriverGetExtensionFunctionAddress(ze_driver_handle_t driver,
                                                            const char *name, void **function) {
    ENTER_ALWAYS(zeDriverGetExtensionFunctionAddress)
    NEED(is_driver(driver))
    NEED(pointer(name))
    NEED(pointer(function))
    if (strcmp(name, "zeDeviceSynchronize") != 0 || !get().control.waits) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *function = reinterpret_cast<void *>(fake_zeDeviceSynchronize);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeDeviceGet(ze_driver_handle_t driver, uint32_t *count,
                                    ze_device_handle_t *devices) {
    ENTER_ALWAYS(zeDeviceGet)
    NEED(is_driver(driver))
    return enumerate(static_cast<uint32_t>(get().control.devices), count, devices, [=](uint32_t i) {
        devices[i] = &all_devices[static_cast<uint32_t>(driver->index) * FAKE_ZE_DEVICES + i];
    });
}

static ze_result_t fake_zeDeviceGetSubDevices(ze_device_handle_t device, uint32_t *count,
                                              ze_device_handle_t *devices) {
    ENTER_ALWAYS(zeDeviceGetSubDevices)
    NEED(is_device(device))
    bool has = get().control.parts && device == &all_devices[device->index];
    return enumerate(has ? 1 : 0, count, devices,
                     [=](uint32_t) { devices[0] = &all_parts[device->index]; });
}

static ze_result_t fake_zeDeviceGetProperties(ze_device_handle_t device,
                                              ze_device_properties_t *properties) {
    ENTER(zeDeviceGetProperties)
    NEED(is_device(device))
    NEED(pointer(properties))
    ze_device_properties_t made{};
    made.stype = properties->stype;
    made.pNext = properties->pNext;
    made.type = static_cast<ze_device_type_t>(get().control.types[device->index]);
    made.vendorId = 0x8086;
    made.maxMemAllocSize = get().control.max_alloc_size;
    made.maxHardwareContexts = 64;
    made.uuid.id[0] = static_cast<uint8_t>(device->index + 1);
    snprintf(made.name, sizeof(made.name), "software device %d", device->index);
    *properties = made;
    return ZE_RESULT_SUCCESS;
}

// One group for everything, one for copies only.
static ze_result_t
fake_zeDeviceGetCommandQueueGroupProperties(ze_device_handle_t device, uint32_t *count,
                                            ze_command_queue_group_properties_t *groups) {
    ENTER(zeDeviceGetCommandQueueGroupProperties)
    NEED(is_device(device))
    return enumerate(2, count, groups, [=](uint32_t i) {
        groups[i].flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        if (i == 0) {
            groups[i].flags |= ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
        }
        groups[i].maxMemoryFillPatternSize = i == 0 ? 128 : 1;
        groups[i].numQueues = 1;
    });
}

static ze_result_t fake_zeDeviceGetMemoryProperties(ze_device_handle_t device, uint32_t *count,
                                                    ze_device_memory_properties_t *properties) {
    ENTER(zeDeviceGetMemoryProperties)
    NEED(is_device(device))
    return enumerate(get().control.memories, count, properties, [=](uint32_t i) {
        properties[i].flags = 0;
        properties[i].maxClockRate = 1000;
        properties[i].maxBusWidth = 64;
        properties[i].totalSize = get().control.device_memory[device->index];
        snprintf(properties[i].name, sizeof(properties[i].name), "memory %u", i);
    });
}

static ze_result_t fake_zeDeviceGetCacheProperties(ze_device_handle_t device, uint32_t *count,
                                                   ze_device_cache_properties_t *properties) {
    ENTER(zeDeviceGetCacheProperties)
    NEED(is_device(device))
    return enumerate(1, count, properties, [=](uint32_t i) {
        properties[i].flags = 0;
        properties[i].cacheSize = size_t{4} << 20;
        auto line = static_cast<CacheLine *>(properties[i].pNext);
        if (line && line->stype == FAKE_ZE_CACHE_LINE_TYPE && get().control.cache_line) {
            line->size = get().control.cache_line;
        }
    });
}

static ze_result_t fake_zeDeviceCanAccessPeer(ze_device_handle_t device, ze_device_handle_t peer,
                                              ze_bool_t *can) {
    ENTER(zeDeviceCanAccessPeer)
    NEED(is_device(device))
    NEED(is_device(peer))
    NEED(pointer(can))
    *can = device == peer || (get().control.peers && device->driver == peer->driver);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeDeviceGetStatus(ze_device_handle_t device) {
    ENTER(zeDeviceGetStatus)
    return is_device(device);
}

// --- contexts ------------------------------------------------------------------------------------

static ze_result_t fake_zeContextCreate(ze_driver_handle_t driver, const ze_context_desc_t *wanted,
                                        ze_context_handle_t *context) {
    ENTER(zeContextCreate)
    NEED(is_driver(driver))
    NEED(pointer(wanted))
    NEED(pointer(context))
    *context = born(get().contexts, get().control.contexts, nullptr,
                    new _ze_context_handle_t{driver->index, 0});
    return ZE_RESULT_SUCCESS;
}

// A context goes last: the real driver would let its users crash.
static ze_result_t fake_zeContextDestroy(ze_context_handle_t context) {
    ENTER_RELEASE(zeContextDestroy)
    NEED(in(context))
    if (context->objects > 0) {
        return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    }
    gone(get().contexts, get().control.contexts, nullptr, context);
    return lost();
}

static ze_result_t fake_zeContextGetStatus(ze_context_handle_t context) {
    ENTER(zeContextGetStatus)
    return in(context);
}

static ze_result_t fake_zeContextMakeMemoryResident(ze_context_handle_t context,
                                                    ze_device_handle_t device, void *ptr,
                                                    size_t size) {
    ENTER(zeContextMakeMemoryResident)
    NEED(in(context, device))
    NEED(pointer(ptr))
    NEED(is_size(size))
    std::set<int> *residents = residents_at(ptr, size);
    if (!residents) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    get().control.residents[device->index] += residents->insert(device->index).second;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeContextEvictMemory(ze_context_handle_t context, ze_device_handle_t device,
                                             void *ptr, size_t size) {
    ENTER(zeContextEvictMemory)
    NEED(in(context, device))
    NEED(pointer(ptr))
    NEED(is_size(size))
    std::set<int> *residents = residents_at(ptr, size);
    if (!residents) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    get().control.residents[device->index] -= static_cast<long>(residents->erase(device->index));
    return ZE_RESULT_SUCCESS;
}

// --- memory --------------------------------------------------------------------------------------

static ze_result_t fake_zeMemAllocHost(ze_context_handle_t context,
                                       const ze_host_mem_alloc_desc_t *wanted, size_t size,
                                       size_t alignment, void **ptr) {
    ENTER(zeMemAllocHost)
    NEED(in(context))
    NEED(pointer(wanted))
    int import_fd = -1;
    fake_ze_request_t request{};
    request.function = FAKE_zeMemAllocHost;
    request.size = size;
    request.alignment = alignment;
    request.host_flags = wanted->flags;
    read_chain(wanted->pNext, &request, &import_fd);
    return alloc(context, nullptr, ZE_MEMORY_TYPE_HOST, request, import_fd, ptr);
}

static ze_result_t fake_zeMemAllocDevice(ze_context_handle_t context,
                                         const ze_device_mem_alloc_desc_t *wanted, size_t size,
                                         size_t alignment, ze_device_handle_t device, void **ptr) {
    ENTER(zeMemAllocDevice)
    NEED(in(context, device))
    NEED(pointer(wanted))
    int import_fd = -1;
    fake_ze_request_t request{};
    request.function = FAKE_zeMemAllocDevice;
    request.size = size;
    request.alignment = alignment;
    request.ordinal = wanted->ordinal;
    request.device_flags = wanted->flags;
    read_chain(wanted->pNext, &request, &import_fd);
    return alloc(context, device, ZE_MEMORY_TYPE_DEVICE, request, import_fd, ptr);
}

static ze_result_t fake_zeMemAllocShared(ze_context_handle_t context,
                                         const ze_device_mem_alloc_desc_t *wanted,
                                         const ze_host_mem_alloc_desc_t *wanted_on_host,
                                         size_t size, size_t alignment, ze_device_handle_t device,
                                         void **ptr) {
    ENTER(zeMemAllocShared)
    NEED(device ? in(context, device) : in(context))
    NEED(pointer(wanted))
    NEED(pointer(wanted_on_host))
    int import_fd = -1;
    fake_ze_request_t request{};
    request.function = FAKE_zeMemAllocShared;
    request.size = size;
    request.alignment = alignment;
    request.ordinal = wanted->ordinal;
    request.host_flags = wanted_on_host->flags;
    request.device_flags = wanted->flags;
    read_chain(wanted->pNext, &request, &import_fd);
    return alloc(context, device, ZE_MEMORY_TYPE_SHARED, request, import_fd, ptr);
}

static ze_result_t fake_zeMemFree(ze_context_handle_t context, void *ptr) {
    ENTER_RELEASE(zeMemFree)
    NEED(begins(context, ptr, false))
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    note_removal(address, get().memory[address].size);
    remove_memory(address);
    return lost();
}

static ze_result_t fake_zeMemFreeExt(ze_context_handle_t context,
                                     const ze_memory_free_ext_desc_t *how, void *ptr) {
    ENTER_RELEASE(zeMemFreeExt)
    NEED(pointer(how))
    NEED(begins(context, ptr, false))
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    switch (how->freePolicy) {
    case 0:
        note_removal(address, get().memory[address].size);
        remove_memory(address);
        return lost();
    case ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE:
        run_all();
        remove_memory(address);
        return lost();
    case ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE:
        get().memory[address].is_deferred = true;
        sweep_deferred();
        return lost();
    default:
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
}

static ze_result_t fake_zeMemGetAllocProperties(ze_context_handle_t context, const void *ptr,
                                                ze_memory_allocation_properties_t *properties,
                                                ze_device_handle_t *device) {
    ENTER(zeMemGetAllocProperties)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(pointer(properties))
    Memory *memory = memory_at(ptr);
    auto mapping = holding(get().mappings, reinterpret_cast<uintptr_t>(ptr), 1);
    bool is_mapped = mapping != get().mappings.end();
    properties->type = memory      ? memory->type
                       : is_mapped ? ZE_MEMORY_TYPE_DEVICE
                                   : ZE_MEMORY_TYPE_UNKNOWN;
    properties->id = memory ? memory->id : 0;
    properties->pageSize = memory ? memory->page_size : is_mapped ? get().control.granularity : 0;
    int index = memory ? memory->device : is_mapped ? mapping->second.physical->device : -1;
    if (device) {
        *device = index < 0 ? nullptr : &all_devices[index];
    }
    auto exported = static_cast<ze_external_memory_export_fd_t *>(properties->pNext);
    if (exported && exported->stype == ZE_STRUCTURE_TYPE_EXTERNAL_MEMORY_EXPORT_FD) {
        if (!memory || !memory->is_exportable) {
            return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
        }
        exported->fd =
            memory->exported >= 0 ? memory->exported : fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
        memory->exported = get().control.keeps_exports ? exported->fd : -1;
    }
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeMemGetAddressRange(ze_context_handle_t context, const void *ptr,
                                             void **base, size_t *size) {
    ENTER(zeMemGetAddressRange)
    NEED(in(context))
    NEED(pointer(ptr))
    auto at = holding(get().memory, reinterpret_cast<uintptr_t>(ptr), 1);
    if (at == get().memory.end() || at->second.is_deferred) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (base) {
        *base = reinterpret_cast<void *>(at->first);
    }
    if (size) {
        *size = at->second.size;
    }
    return ZE_RESULT_SUCCESS;
}

// --- IPC -----------------------------------------------------------------------------------------

// The descriptor stays open until the memory is freed or the handle is put back.
static ze_result_t fake_zeMemGetIpcHandle(ze_context_handle_t context, const void *ptr,
                                          ze_ipc_mem_handle_t *handle) {
    ENTER(zeMemGetIpcHandle)
    NEED(begins(context, ptr, false))
    NEED(pointer(handle))
    Memory &memory = get().memory[reinterpret_cast<uintptr_t>(ptr)];
    if (memory.descriptor < 0) {
        memory.descriptor = fcntl(memory.fd, F_DUPFD_CLOEXEC, 0);
        if (memory.descriptor < 0) {
            return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        get().control.descriptors++;
    }
    size_t offset = static_cast<size_t>(static_cast<const char *>(ptr) - memory.base);
    IpcHandle made{memory.descriptor, memory.type, ipc_magic, offset, memory.size};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &made, sizeof(made));
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeMemOpenIpcHandle(ze_context_handle_t context, ze_device_handle_t device,
                                           ze_ipc_mem_handle_t handle, ze_ipc_memory_flags_t flags,
                                           void **ptr) {
    ENTER(zeMemOpenIpcHandle)
    NEED(in(context, device))
    NEED(pointer(ptr))
    if (flags > (ZE_IPC_MEMORY_FLAG_BIAS_CACHED | ZE_IPC_MEMORY_FLAG_BIAS_UNCACHED)) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    IpcHandle wanted;
    memcpy(&wanted, &handle, sizeof(wanted));
    size_t size = wanted.magic == ipc_magic ? size_of_file(wanted.fd) : 0;
    bool is_type = wanted.type >= ZE_MEMORY_TYPE_HOST && wanted.type <= ZE_MEMORY_TYPE_SHARED;
    if (size == 0 || !is_type || wanted.offset > size || wanted.size > size - wanted.offset) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    Memory made{};
    made.size = wanted.size;
    made.mapped = size;
    made.type = static_cast<ze_memory_type_t>(wanted.type);
    made.context = context;
    made.device = wanted.type == ZE_MEMORY_TYPE_HOST ? -1 : device->index;
    made.page_size = get().control.page_size;
    made.is_imported = true;
    made.fd = fcntl(wanted.fd, F_DUPFD_CLOEXEC, 0);
    if (made.fd < 0) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    ze_result_t result = add_memory(made, wanted.offset, made.page_size, ptr);
    if (result != ZE_RESULT_SUCCESS) {
        close(made.fd);
    }
    return result;
}

static ze_result_t fake_zeMemCloseIpcHandle(ze_context_handle_t context, const void *ptr) {
    ENTER_RELEASE(zeMemCloseIpcHandle)
    NEED(begins(context, ptr, true))
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    note_removal(address, get().memory[address].size);
    remove_memory(address);
    return lost();
}

// --- virtual memory ------------------------------------------------------------------------------

static ze_result_t fake_zeVirtualMemReserve(ze_context_handle_t context, const void *wish,
                                            size_t size, void **ptr) {
    ENTER(zeVirtualMemReserve)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(is_granular(wish, size))
    void *base = MAP_FAILED;
    if (wish && !get().control.deaf) {
        base = mmap(const_cast<void *>(wish), size, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    }
    if (base == MAP_FAILED) {
        base = reserve(size, granularity_of(size));
    }
    if (!base) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    get().reservations[reinterpret_cast<uintptr_t>(base)] = Reservation{size, context};
    get().control.reservations++;
    context->objects++;
    *ptr = base;
    return ZE_RESULT_SUCCESS;
}

// As the specification says, mappings that are left go as well; the range must be a whole one.
static ze_result_t fake_zeVirtualMemFree(ze_context_handle_t context, const void *ptr,
                                         size_t size) {
    ENTER_RELEASE(zeVirtualMemFree)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(is_granular(ptr, size))
    State &s = get();
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    auto at = s.reservations.find(address);
    if (at == s.reservations.end() || at->second.size != size || at->second.context != context) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    for (auto mapping = s.mappings.lower_bound(address);
         mapping != s.mappings.end() && mapping->first < address + size;) {
        uintptr_t base = mapping->first;
        size_t length = mapping->second.size;
        ++mapping;
        unmap(base, length);
    }
    munmap(reinterpret_cast<void *>(address), size);
    s.reservations.erase(at);
    s.control.reservations--;
    context->objects--;
    return lost();
}

static ze_result_t fake_zeVirtualMemQueryPageSize(ze_context_handle_t context,
                                                  ze_device_handle_t device, size_t size,
                                                  size_t *page_size) {
    ENTER(zeVirtualMemQueryPageSize)
    NEED(in(context, device))
    NEED(is_size(size))
    NEED(pointer(page_size))
    *page_size = granularity_of(size);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zePhysicalMemCreate(ze_context_handle_t context, ze_device_handle_t device,
                                            ze_physical_mem_desc_t *wanted,
                                            ze_physical_mem_handle_t *physical) {
    ENTER(zePhysicalMemCreate)
    NEED(in(context, device))
    NEED(pointer(wanted))
    NEED(pointer(physical))
    NEED(is_granular(nullptr, wanted->size))
    if (!take(device->index, wanted->size)) {
        return ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    int fd = make_file("fake_level_zero", wanted->size);
    char *alias = map_file(fd, wanted->size);
    if (!alias) {
        give(device->index, wanted->size);
        if (fd >= 0) {
            close(fd);
        }
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    *physical =
        born(get().physicals, get().control.physicals, context,
             new _ze_physical_mem_handle_t{wanted->size, context, device->index, fd, alias, 0});
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zePhysicalMemDestroy(ze_context_handle_t context,
                                             ze_physical_mem_handle_t physical) {
    ENTER_RELEASE(zePhysicalMemDestroy)
    NEED(in(context))
    NEED(living(get().physicals, physical))
    if (physical->mappings > 0 || physical->context != context) {
        return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    }
    munmap(physical->alias, physical->size);
    close(physical->fd);
    give(physical->device, physical->size);
    gone(get().physicals, get().control.physicals, context, physical);
    return lost();
}

static ze_result_t fake_zeVirtualMemMap(ze_context_handle_t context, const void *ptr, size_t size,
                                        ze_physical_mem_handle_t physical, size_t offset,
                                        ze_memory_access_attribute_t access) {
    ENTER(zeVirtualMemMap)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(living(get().physicals, physical))
    NEED(is_granular(ptr, size))
    State &s = get();
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    if (offset % granularity_of(size) != 0) {
        return ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT;
    }
    if (access > ZE_MEMORY_ACCESS_ATTRIBUTE_READONLY) {
        return ZE_RESULT_ERROR_INVALID_ENUMERATION;
    }
    bool fits = physical->context == context && offset <= physical->size &&
                size <= physical->size - offset &&
                holding(s.reservations, address, size) != s.reservations.end() &&
                !any_overlaps(s.mappings, address, size);
    if (!fits) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!map_at(reinterpret_cast<void *>(address), size, PROT_NONE, physical->fd, offset)) {
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    s.mappings[address] = Mapping{size, physical, offset, access, {}};
    s.control.mappings++;
    physical->mappings++;
    context->objects++;
    return protect(address, size, access);
}

static ze_result_t fake_zeVirtualMemUnmap(ze_context_handle_t context, const void *ptr,
                                          size_t size) {
    ENTER_RELEASE(zeVirtualMemUnmap)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(is_granular(ptr, size))
    auto at = get().mappings.find(reinterpret_cast<uintptr_t>(ptr));
    if (at == get().mappings.end() || at->second.size != size) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT; // exactly the mapped range is unmapped
    }
    unmap(reinterpret_cast<uintptr_t>(ptr), size);
    return lost();
}

static ze_result_t fake_zeVirtualMemSetAccessAttribute(ze_context_handle_t context, const void *ptr,
                                                       size_t size,
                                                       ze_memory_access_attribute_t access) {
    ENTER(zeVirtualMemSetAccessAttribute)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(is_granular(ptr, size))
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    return is_run(get().mappings, address, size) ? protect(address, size, access)
                                                 : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t fake_zeVirtualMemGetAccessAttribute(ze_context_handle_t context, const void *ptr,
                                                       size_t size,
                                                       ze_memory_access_attribute_t *access,
                                                       size_t *out_size) {
    ENTER(zeVirtualMemGetAccessAttribute)
    NEED(in(context))
    NEED(pointer(ptr))
    NEED(pointer(access))
    NEED(pointer(out_size))
    NEED(is_granular(ptr, size))
    State &s = get();
    uintptr_t address = reinterpret_cast<uintptr_t>(ptr);
    if (holding(s.reservations, address, size) == s.reservations.end()) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    auto access_at = [&s](uintptr_t at) {
        auto mapping = holding(s.mappings, at, 1);
        return mapping == s.mappings.end() ? ZE_MEMORY_ACCESS_ATTRIBUTE_NONE
                                           : mapping->second.access;
    };
    *access = access_at(address);
    *out_size = 0;
    while (*out_size < size && access_at(address + *out_size) == *access) {
        *out_size += granularity_of(1);
    }
    return ZE_RESULT_SUCCESS;
}

// --- queues and lists ----------------------------------------------------------------------------

static ze_result_t check_queue(ze_context_handle_t context, ze_device_handle_t device,
                               const ze_command_queue_desc_t *wanted, const void *out) {
    NEED(in(context, device))
    NEED(pointer(wanted))
    NEED(pointer(out))
    return wanted->ordinal < 2 && wanted->index == 0 ? ZE_RESULT_SUCCESS
                                                     : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t fake_zeCommandQueueCreate(ze_context_handle_t context, ze_device_handle_t device,
                                             const ze_command_queue_desc_t *wanted,
                                             ze_command_queue_handle_t *queue) {
    ENTER(zeCommandQueueCreate)
    NEED(check_queue(context, device, wanted, queue))
    bool is_synchronous = wanted->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    *queue = born(get().queues, get().control.queues, context,
                  new _ze_command_queue_handle_t{{context, device, is_synchronous, {}}});
    get().streams.insert(&(*queue)->stream);
    return ZE_RESULT_SUCCESS;
}

// Queued work is done before: the real driver requires its user to wait.
static ze_result_t fake_zeCommandQueueDestroy(ze_command_queue_handle_t queue) {
    ENTER_RELEASE(zeCommandQueueDestroy)
    NEED(living(get().queues, queue))
    run_all();
    get().streams.erase(&queue->stream);
    gone(get().queues, get().control.queues, queue->stream.context, queue);
    sweep_deferred();
    return lost();
}

static ze_result_t fake_zeCommandQueueExecuteCommandLists(ze_command_queue_handle_t queue,
                                                          uint32_t count,
                                                          ze_command_list_handle_t *lists,
                                                          ze_fence_handle_t fence) {
    ENTER(zeCommandQueueExecuteCommandLists)
    NEED(living(get().queues, queue))
    NEED(pointer(lists))
    if (fence) {
        NEED(living(get().fences, fence))
    }
    for (uint32_t i = 0; i < count; i++) {
        NEED(living(get().lists, lists[i]))
        if (lists[i]->immediate || !lists[i]->is_closed) {
            return ZE_RESULT_ERROR_INVALID_ARGUMENT;
        }
    }
    Stream *stream = &queue->stream;
    auto barrier = [stream](std::function<bool(Stream *)> run) {
        Work work;
        work.run = std::move(run);
        work.is_barrier = true;
        stream->queue.push_back(std::move(work));
    };
    // Lists are done one after the other.
    for (uint32_t i = 0; i < count; i++) {
        stream->queue.insert(stream->queue.end(), lists[i]->recorded.begin(),
                             lists[i]->recorded.end());
        barrier([](Stream *) { return true; });
    }
    if (fence) {
        barrier([fence](Stream *) {
            fence->is_signaled = true;
            return true;
        });
    }
    if (stream->is_synchronous) {
        run_all();
    }
    return lost();
}

static ze_result_t fake_zeCommandQueueSynchronize(ze_command_queue_handle_t queue,
                                                  uint64_t timeout) {
    ENTER(zeCommandQueueSynchronize)
    NEED(living(get().queues, queue))
    return wait_for(timeout, [queue] { return queue->stream.queue.empty(); });
}

static ze_result_t fake_zeCommandListCreate(ze_context_handle_t context, ze_device_handle_t device,
                                            const ze_command_list_desc_t *wanted,
                                            ze_command_list_handle_t *list) {
    ENTER(zeCommandListCreate)
    NEED(in(context, device))
    NEED(pointer(wanted))
    NEED(pointer(list))
    *list = born(get().lists, get().control.lists, context,
                 new _ze_command_list_handle_t{nullptr, context, {}, false});
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeCommandListCreateImmediate(ze_context_handle_t context,
                                                     ze_device_handle_t device,
                                                     const ze_command_queue_desc_t *wanted,
                                                     ze_command_list_handle_t *list) {
    ENTER(zeCommandListCreateImmediate)
    NEED(check_queue(context, device, wanted, list))
    bool is_synchronous = wanted->mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    Stream *stream = kept(new Stream{context, device, is_synchronous, {}});
    *list = born(get().lists, get().control.lists, context,
                 new _ze_command_list_handle_t{stream, context, {}, false});
    get().streams.insert(stream);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeCommandListDestroy(ze_command_list_handle_t list) {
    ENTER_RELEASE(zeCommandListDestroy)
    NEED(living(get().lists, list))
    if (list->immediate) {
        run_all();
        get().streams.erase(list->immediate);
    }
    gone(get().lists, get().control.lists, list->context, list);
    sweep_deferred();
    return lost();
}

static ze_result_t fake_zeCommandListClose(ze_command_list_handle_t list) {
    ENTER(zeCommandListClose)
    NEED(living(get().lists, list))
    list->is_closed = !list->immediate;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeCommandListReset(ze_command_list_handle_t list) {
    ENTER(zeCommandListReset)
    NEED(living(get().lists, list))
    list->recorded.clear();
    list->is_closed = false;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t append_barrier(ze_command_list_handle_t list, ze_event_handle_t signal,
                                  uint32_t count, ze_event_handle_t *waits) {
    Work work;
    work.is_barrier = true;
    return append(
        list, work, [](Stream *) {}, signal, count, waits);
}

static ze_result_t fake_zeCommandListAppendBarrier(ze_command_list_handle_t list,
                                                   ze_event_handle_t signal, uint32_t count,
                                                   ze_event_handle_t *waits) {
    ENTER(zeCommandListAppendBarrier)
    return append_barrier(list, signal, count, waits);
}

static ze_result_t fake_zeCommandListAppendSignalEvent(ze_command_list_handle_t list,
                                                       ze_event_handle_t event) {
    ENTER(zeCommandListAppendSignalEvent)
    NEED(living(get().events, event))
    return append_barrier(list, event, 0, nullptr);
}

static ze_result_t fake_zeCommandListAppendWaitOnEvents(ze_command_list_handle_t list,
                                                        uint32_t count, ze_event_handle_t *events) {
    ENTER(zeCommandListAppendWaitOnEvents)
    NEED(pointer(events))
    return append_barrier(list, nullptr, count, events);
}

static ze_result_t fake_zeCommandListAppendMemoryCopy(ze_command_list_handle_t list, void *to,
                                                      const void *from, size_t size,
                                                      ze_event_handle_t signal, uint32_t count,
                                                      ze_event_handle_t *waits) {
    ENTER(zeCommandListAppendMemoryCopy)
    NEED(pointer(to))
    NEED(pointer(from))
    Work work;
    work.reads = reinterpret_cast<uintptr_t>(from);
    work.writes = reinterpret_cast<uintptr_t>(to);
    work.size = size;
    return append(
        list, work, [=](Stream *stream) { copy_now(stream, work.writes, work.reads, size); },
        signal, count, waits);
}

static ze_result_t fake_zeCommandListAppendMemoryFill(ze_command_list_handle_t list, void *to,
                                                      const void *pattern, size_t pattern_size,
                                                      size_t size, ze_event_handle_t signal,
                                                      uint32_t count, ze_event_handle_t *waits) {
    ENTER(zeCommandListAppendMemoryFill)
    NEED(pointer(to))
    NEED(pointer(pattern))
    if (pattern_size == 0 || pattern_size > 128 || (pattern_size & (pattern_size - 1)) != 0) {
        return ZE_RESULT_ERROR_INVALID_SIZE;
    }
    const char *bytes = static_cast<const char *>(pattern);
    std::vector<char> copy(bytes, bytes + pattern_size);
    Work work;
    work.writes = reinterpret_cast<uintptr_t>(to);
    work.size = size;
    return append(
        list, work, [=](Stream *stream) { fill_now(stream, work.writes, copy, size); }, signal,
        count, waits);
}

// --- fences and events ---------------------------------------------------------------------------

static ze_result_t fake_zeFenceCreate(ze_command_queue_handle_t queue,
                                      const ze_fence_desc_t *wanted, ze_fence_handle_t *fence) {
    ENTER(zeFenceCreate)
    NEED(living(get().queues, queue))
    NEED(pointer(wanted))
    NEED(pointer(fence))
    *fence = born(get().fences, get().control.fences, queue->stream.context,
                  new _ze_fence_handle_t{queue, (wanted->flags & ZE_FENCE_FLAG_SIGNALED) != 0});
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeFenceDestroy(ze_fence_handle_t fence) {
    ENTER_RELEASE(zeFenceDestroy)
    NEED(living(get().fences, fence))
    gone(get().fences, get().control.fences, fence->queue->stream.context, fence);
    return lost();
}

static ze_result_t fake_zeFenceHostSynchronize(ze_fence_handle_t fence, uint64_t timeout) {
    ENTER(zeFenceHostSynchronize)
    NEED(living(get().fences, fence))
    return wait_for(timeout, [fence] { return fence->is_signaled; });
}

static ze_result_t fake_zeFenceQueryStatus(ze_fence_handle_t fence) {
    ENTER(zeFenceQueryStatus)
    NEED(living(get().fences, fence))
    return wait_for(0, [fence] { return fence->is_signaled; });
}

static ze_result_t fake_zeFenceReset(ze_fence_handle_t fence) {
    ENTER(zeFenceReset)
    NEED(living(get().fences, fence))
    fence->is_signaled = false;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeEventPoolCreate(ze_context_handle_t context,
                                          const ze_event_pool_desc_t *wanted, uint32_t,
                                          ze_device_handle_t *, ze_event_pool_handle_t *pool) {
    ENTER(zeEventPoolCreate)
    NEED(in(context))
    NEED(pointer(wanted))
    NEED(pointer(pool))
    if (wanted->count == 0) {
        return ZE_RESULT_ERROR_INVALID_SIZE;
    }
    *pool = born(get().pools, get().control.pools, context,
                 new _ze_event_pool_handle_t{context, std::vector<bool>(wanted->count)});
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeEventPoolDestroy(ze_event_pool_handle_t pool) {
    ENTER_RELEASE(zeEventPoolDestroy)
    NEED(living(get().pools, pool))
    if (std::count(pool->taken.begin(), pool->taken.end(), true) > 0) {
        return ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE;
    }
    gone(get().pools, get().control.pools, pool->context, pool);
    return lost();
}

static ze_result_t fake_zeEventCreate(ze_event_pool_handle_t pool, const ze_event_desc_t *wanted,
                                      ze_event_handle_t *event) {
    ENTER(zeEventCreate)
    NEED(living(get().pools, pool))
    NEED(pointer(wanted))
    NEED(pointer(event))
    if (wanted->index >= pool->taken.size() || pool->taken[wanted->index]) {
        return ZE_RESULT_ERROR_INVALID_ARGUMENT;
    }
    pool->taken[wanted->index] = true;
    *event = born(get().events, get().control.events, pool->context,
                  new _ze_event_handle_t{pool, wanted->index, false});
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeEventDestroy(ze_event_handle_t event) {
    ENTER_RELEASE(zeEventDestroy)
    NEED(living(get().events, event))
    event->pool->taken[event->index] = false;
    gone(get().events, get().control.events, event->pool->context, event);
    return lost();
}

static ze_result_t fake_zeEventHostSignal(ze_event_handle_t event) {
    ENTER(zeEventHostSignal)
    NEED(living(get().events, event))
    event->is_signaled = true;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t fake_zeEventHostSynchronize(ze_event_handle_t event, uint64_t timeout) {
    ENTER(zeEventHostSynchronize)
    NEED(living(get().events, event))
    return wait_for(timeout, [event] { return event->is_signaled; });
}

static ze_result_t fake_zeEventQueryStatus(ze_event_handle_t event) {
    ENTER(zeEventQueryStatus)
    NEED(living(get().events, event))
    return wait_for(0, [event] { return event->is_signaled; });
}

static ze_result_t fake_zeEventHostReset(ze_event_handle_t event) {
    ENTER(zeEventHostReset)
    NEED(living(get().events, event))
    event->is_signaled = false;
    return ZE_RESULT_SUCCESS;
}

} // extern "C"

// --- tables --------------------------------------------------------------------------------------

namespace {

// Members without a function are NULL, and the loader answers for them.
template <typename Table> ze_result_t fill_table(ze_api_version_t version, Table *table) {
    NEED(pointer(table))
    if (ZE_MAJOR_VERSION(version) != ZE_MAJOR_VERSION(ZE_API_VERSION_CURRENT)) {
        return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;
    }
    *table = Table{};
#define FAKE_ZE(function, name, member)                                                            \
    if constexpr (std::is_same_v<Table, ze_##name##_dditable_t>) {                                 \
        table->pfn##member = fake_##function;                                                      \
    }
#include "functions.def"
#undef FAKE_ZE
    return ZE_RESULT_SUCCESS;
}

} // namespace

extern "C" {

#define TABLE(getter, type)                                                                        \
    ZE_DLLEXPORT ze_result_t ZE_APICALL getter(ze_api_version_t version, type *table) {            \
        return fill_table(version, table);                                                         \
    }
TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t)
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t)
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t)
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t)
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t)
TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t)
TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t)
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t)
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t)
TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t)
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t)

// Nothing of ours, but the loader does not start without them.
TABLE(zeGetImageProcAddrTable, ze_image_dditable_t)
TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t)
TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t)
TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t)
TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t)
TABLE(zetGetDeviceProcAddrTable, zet_device_dditable_t)
TABLE(zetGetContextProcAddrTable, zet_context_dditable_t)
TABLE(zetGetCommandListProcAddrTable, zet_command_list_dditable_t)
TABLE(zetGetKernelProcAddrTable, zet_kernel_dditable_t)
TABLE(zetGetModuleProcAddrTable, zet_module_dditable_t)
TABLE(zetGetDebugProcAddrTable, zet_debug_dditable_t)
TABLE(zetGetMetricProcAddrTable, zet_metric_dditable_t)
TABLE(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t)
TABLE(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t)
TABLE(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t)
TABLE(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t)
TABLE(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t)
TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t)
TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t)
TABLE(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t)
TABLE(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t)
TABLE(zesGetPowerProcAddrTable, zes_power_dditable_t)
TABLE(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t)
TABLE(zesGetEngineProcAddrTable, zes_engine_dditable_t)
TABLE(zesGetStandbyProcAddrTable, zes_standby_dditable_t)
TABLE(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t)
TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t)
TABLE(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t)
TABLE(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t)
TABLE(zesGetPsuProcAddrTable, zes_psu_dditable_t)
TABLE(zesGetFanProcAddrTable, zes_fan_dditable_t)
TABLE(zesGetLedProcAddrTable, zes_led_dditable_t)
TABLE(zesGetRasProcAddrTable, zes_ras_dditable_t)
TABLE(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t)

} // extern "C"
