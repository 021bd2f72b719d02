#include "trace.h"

#include <algorithm>
#include <fstream>
#include <unordered_map>

namespace trace {
namespace {

// More is no memory of any machine, and sums of as many as fit a file cannot overflow.
constexpr size_t MAX_SIZE = size_t{1} << 46;
constexpr size_t MAX_EVENTS = size_t{1} << 28;

// Numbers of a line, each up to MAX_SIZE.
class Words {
    const std::string &line;
    size_t at;

  public:
    Words(const std::string &text, size_t start) : line(text), at(start) {}

    bool number(size_t &value) {
        const size_t first = at + 1;
        if (at >= line.size() || line[at] != ' ') {
            return false;
        }
        value = 0;
        for (at = first; at < line.size() && line[at] >= '0' && line[at] <= '9'; at++) {
            value = value * 10 + static_cast<size_t>(line[at] - '0');
            if (value > MAX_SIZE) {
                return false;
            }
        }
        return at > first;
    }
    bool at_end() const {
        return at == line.size();
    }
};

class Reader {
    struct Block {
        uint32_t id;
        size_t size;
    };
    Trace &trace;
    std::unordered_map<size_t, Block> live; // by the number in the file
    size_t live_bytes = 0;

    std::string allocate(size_t number, size_t size) {
        if (size == 0) {
            return "a block of 0 bytes";
        }
        if (trace.blocks > UINT32_MAX || size > MAX_SIZE - live_bytes) {
            return "more blocks or bytes than can be";
        }
        const Block block = {static_cast<uint32_t>(trace.blocks), size};
        if (!live.emplace(number, block).second) {
            return "block " + std::to_string(number) + " is allocated already";
        }
        trace.events.push_back({block.id, size});
        trace.blocks++;
        live_bytes += size;
        trace.peak_live = std::max(trace.peak_live, live_bytes);
        return "";
    }
    std::string release(size_t number) {
        const auto found = live.find(number);
        if (found == live.end()) {
            return "block " + std::to_string(number) + " is not allocated";
        }
        trace.events.push_back({found->second.id, 0});
        live_bytes -= found->second.size;
        live.erase(found);
        return "";
    }

  public:
    explicit Reader(Trace &to) : trace(to) {}

    // The fault of the line; empty: none.
    std::string line(const std::string &text) {
        Words words(text, 1);
        size_t first = 0, second = 0;
        if (text.empty() || text[0] == '#') {
            return "";
        }
        if (trace.events.size() >= MAX_EVENTS) {
            return "too many lines";
        }
        const bool is_pair = text[0] == 'a' || text[0] == 't';
        const bool is_single = text[0] == 'f' || text[0] == '+' || text[0] == '-';
        if ((!is_pair && !is_single) || !words.number(first) ||
            (is_pair && !words.number(second)) || !words.at_end()) {
            return "must be 'a <block> <bytes>', 'f <block>', '+ <bytes>', '- <blocks ago>' or 't "
                   "<allocated> <reserved>'";
        }
        if (text[0] == 't') {
            trace.allocated = first;
            trace.reserved = second;
            return "";
        }
        switch (text[0]) {
        case '+':
            return allocate(trace.blocks, first);
        case '-': // wraps around to a number that no block has
            return release(trace.blocks - first);
        case 'a':
            return allocate(first, second);
        default:
            return release(first);
        }
    }
};

} // namespace

bool read(std::istream &file, Trace &trace, std::string &error) {
    trace = {};
    Reader reader(trace);
    std::string text;
    for (size_t number = 1; std::getline(file, text); number++) {
        const std::string wrong = reader.line(text);
        if (!wrong.empty()) {
            error = "line " + std::to_string(number) + ": " + wrong;
            return false;
        }
    }
    if (file.bad()) {
        error = "cannot be read";
        return false;
    }
    if (trace.events.empty()) {
        error = "no events";
        return false;
    }
    return true;
}

bool read_file(const char *path, Trace &trace, std::string &error) {
    std::ifstream file(path);
    if (!file) {
        error = "cannot be opened";
        return false;
    }
    return read(file, trace, error);
}

bool replay(const Trace &trace, umf_memory_pool_handle_t pool, const std::function<void()> &after) {
    std::vector<void *> live(trace.blocks);
    bool good = true;
    for (const Event &event : trace.events) {
        void *&ptr = live[event.id];
        if (event.size) {
            ptr = umfPoolMalloc(pool, event.size);
            good = good && ptr;
            if (after) {
                after();
            }
        } else {
            good = umfPoolFree(pool, ptr) == UMF_RESULT_SUCCESS && good;
            ptr = nullptr;
        }
    }
    for (void *ptr : live) {
        good = umfPoolFree(pool, ptr) == UMF_RESULT_SUCCESS && good;
    }
    return good;
}

} // namespace trace
