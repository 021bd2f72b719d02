// The order of work in the software drivers; see oracle.h.

#include "oracle.h"

#include <algorithm>
#include <cstdio>

namespace oracle {

// A wrong test is wrong everywhere: a few faults suffice.
constexpr size_t max_faults = 20;

void Clock::raise(size_t lane, uint64_t count) {
    if (lane >= counts.size()) {
        counts.resize(lane + 1);
    }
    counts[lane] = std::max(counts[lane], count);
}

void Clock::join(const Clock &other) {
    if (counts.size() < other.counts.size()) {
        counts.resize(other.counts.size());
    }
    for (size_t i = 0; i < other.counts.size(); i++) {
        counts[i] = std::max(counts[i], other.counts[i]);
    }
}

// --- texts ---------------------------------------------------------------------------------------

static std::string text_of(uintptr_t at, size_t size) {
    char text[80];
    snprintf(text, sizeof(text), "bytes 0x%zx to 0x%zx", static_cast<size_t>(at),
             static_cast<size_t>(at + size - 1));
    return text;
}

std::string Oracle::text(const Access &access, const char *does) {
    return access->name + " (work " + std::to_string(access->number) + " of " + access->lane_name +
           ")" + does;
}

void Oracle::fault(const std::string &text) {
    if (found.size() < max_faults) {
        found.push_back(text);
    }
}

// --- lanes ---------------------------------------------------------------------------------------

size_t Oracle::add_lane(const std::string &name) {
    for (size_t i = 0; i < lanes.size(); i++) {
        if (lanes[i].is_dropped && is_idle(i)) {
            lanes[i] = Lane{name, {}, lanes[i].queued, false};
            return i;
        }
    }
    lanes.push_back({name, {}, 0, false});
    return lanes.size() - 1;
}

void Oracle::drop_lane(size_t lane) {
    lanes[lane].is_dropped = true;
}

Clock Oracle::point(size_t lane) const {
    Clock made = lanes[lane].clock;
    made.join(host);
    return made;
}

void Oracle::order(size_t lane, const Clock &point) {
    lanes[lane].clock.join(point);
}

// --- work ----------------------------------------------------------------------------------------

void Oracle::queue(size_t lane, const std::string &name, const Uses &uses) {
    Lane &on = lanes[lane];
    on.clock.join(host);
    on.clock.raise(lane, ++on.queued);
    Access work = std::make_shared<const Work>(Work{name, lane, on.queued, on.name});
    for (const Use &use : uses) {
        if (use.size > 0) {
            touch(use, work, on.clock);
        }
        for (const Use &each : named(use)) {
            touch(each, work, on.clock);
        }
    }
    if (spans.size() > sweep_at) {
        sweep();
    }
}

std::vector<Owner> Oracle::owners(const Uses &uses) const {
    std::vector<Owner> list;
    for (const Use &use : uses) {
        auto at = blocks.upper_bound(use.at);
        at = at == blocks.begin() ? at : std::prev(at);
        for (; at != blocks.end() && at->first < use.at + use.size; ++at) {
            if (at->first + at->second.size > use.at) {
                list.push_back({at->first, at->second.number});
            }
        }
    }
    return list;
}

void Oracle::queue_captured(size_t lane, const std::string &name, const Uses &uses,
                            const std::vector<Owner> &then) {
    for (const Owner &now : owners(uses)) {
        if (std::none_of(then.begin(), then.end(),
                         [&](const Owner &each) { return each.number == now.number; })) {
            const Block &block = blocks.at(now.at);
            fault(name + " of a graph on " + lanes[lane].name + " uses " +
                  text_of(now.at, block.size) + ", which were handed out to " + block.to +
                  " after the capture");
        }
    }
    queue(lane, name, uses);
}

// --- bytes ---------------------------------------------------------------------------------------

bool Oracle::is_passed(const Access &access, const Clock &clock) {
    return !access || clock.of(access->lane) >= access->number;
}

// Makes a span begin there, if bytes before and behind have one.
void Oracle::split(uintptr_t at) {
    auto span = spans.upper_bound(at);
    if (span == spans.begin()) {
        return;
    }
    --span;
    size_t before = at - span->first;
    if (before == 0 || before >= span->second.size) {
        return;
    }
    Span behind = span->second;
    behind.size -= before;
    span->second.size = before;
    spans[at] = std::move(behind);
}

// A use of the span that does not come before the clock.
const Oracle::Access *Oracle::open_use(const Span &span, const Clock &clock,
                                       bool with_readers) const {
    if (!is_passed(span.writer, clock)) {
        return &span.writer;
    }
    for (const Access &reader : span.readers) {
        if (with_readers && !is_passed(reader, clock)) {
            return &reader;
        }
    }
    return nullptr;
}

// The same in a range; `where` becomes the bytes of both.
const Oracle::Access *Oracle::find_open(uintptr_t at, size_t size, const Clock &clock,
                                        bool with_readers, Use *where) const {
    auto span = spans.upper_bound(at);
    span = span == spans.begin() ? span : std::prev(span);
    for (; span != spans.end() && span->first < at + size; ++span) {
        uintptr_t end = std::min(at + size, span->first + span->second.size);
        uintptr_t start = std::max(at, span->first);
        const Access *open = start < end ? open_use(span->second, clock, with_readers) : nullptr;
        if (open) {
            *where = {start, end - start, *open == span->second.writer};
            return open;
        }
    }
    return nullptr;
}

void Oracle::touch(const Use &use, const Access &work, const Clock &clock) {
    Use where;
    if (const Access *open = find_open(use.at, use.size, clock, use.writes, &where)) {
        fault(text(work, use.writes ? " writes " : " reads ") + text_of(where.at, where.size) +
              " without an order after " + text(*open, where.writes ? " writes" : " reads") +
              " them");
    }
    split(use.at);
    split(use.at + use.size);
    use.writes ? write(use, work) : read(use, work, clock);
}

void Oracle::write(const Use &use, const Access &work) {
    spans.erase(spans.lower_bound(use.at), spans.lower_bound(use.at + use.size));
    spans[use.at] = Span{use.size, work, {}};
}

void Oracle::read(const Use &use, const Access &work, const Clock &clock) {
    uintptr_t at = use.at, end = use.at + use.size;
    while (at < end) {
        auto span = spans.lower_bound(at);
        if (span == spans.end() || span->first > at) {
            uintptr_t until = span == spans.end() ? end : std::min(end, span->first);
            spans[at] = Span{until - at, nullptr, {work}};
            at = until;
            continue;
        }
        std::vector<Access> &readers = span->second.readers;
        readers.erase(std::remove_if(readers.begin(), readers.end(),
                                     [&](const Access &each) { return is_passed(each, clock); }),
                      readers.end());
        readers.push_back(work);
        at += span->second.size;
    }
}

// All later work comes after work that the host has seen complete, so uses by that work are
// dropped.
void Oracle::sweep() {
    for (auto span = spans.begin(); span != spans.end();) {
        span = open_use(span->second, host, true) ? std::next(span) : spans.erase(span);
    }
    sweep_at = 2 * spans.size() + 4096;
}

// --- memory --------------------------------------------------------------------------------------

bool Oracle::remove(const char *call, uintptr_t at, size_t size) {
    Use where;
    const Access *open = find_open(at, size, host, true, &where);
    if (open) {
        fault(std::string(call) + " takes " + text_of(where.at, where.size) + " from " +
              text(*open, where.writes ? ", which writes" : ", which reads") +
              " them; the host has not waited for it");
    }
    forget(at, size);
    return !open;
}

void Oracle::forget(uintptr_t at, size_t size) {
    split(at);
    split(at + size);
    spans.erase(spans.lower_bound(at), spans.lower_bound(at + size));
}

// --- blocks --------------------------------------------------------------------------------------

void Oracle::check_owners(const Use &use, const std::string &to) {
    for (const Owner &owner : owners({use})) {
        const Block &block = blocks.at(owner.at);
        fault(text_of(use.at, use.size) + " are handed out to " + to + " while " +
              text_of(owner.at, block.size) + " belong to " + block.to);
    }
}

void Oracle::check_open(const Use &use, const Clock &after, const std::string &to) {
    Use where;
    if (const Access *open = find_open(use.at, use.size, after, true, &where)) {
        fault(text_of(where.at, where.size) + " are handed out to " + to +
              ", which does not come "
              "after " +
              text(*open, where.writes ? ", which writes" : ", which reads") + " them");
    }
}

void Oracle::hand_out(uintptr_t at, size_t size, const Clock &after, const std::string &to) {
    Uses all = named({at, size, true});
    all.push_back({at, size, true});
    handed_out++;
    for (const Use &each : all) {
        check_owners(each, to);
        check_open(each, after, to);
        blocks[each.at] = Block{each.size, handed_out, to};
    }
}

void Oracle::give_back(uintptr_t at, size_t size) {
    auto block = blocks.find(at);
    if (block == blocks.end() || block->second.size != size) {
        fault(text_of(at, size) + " are given back, which were not handed out so");
        return;
    }
    blocks.erase(block);
    for (const Use &each : named({at, size, true})) {
        blocks.erase(each.at);
    }
}

// --- memory at several addresses -----------------------------------------------------------------

Uses Oracle::named(const Use &use) const {
    Uses list;
    auto at = names.upper_bound(use.at);
    at = at == names.begin() ? at : std::prev(at);
    for (; at != names.end() && at->first < use.at + use.size; ++at) {
        const uintptr_t start = std::max(use.at, at->first);
        const uintptr_t end = std::min(use.at + use.size, at->first + at->second.size);
        if (start < end) {
            list.push_back({at->second.name + (start - at->first), end - start, use.writes});
        }
    }
    return list;
}

void Oracle::name(uintptr_t at, size_t size, uintptr_t name) {
    names[at] = Name{size, name};
}

void Oracle::name_first(uintptr_t at, size_t size, uintptr_t name_of) {
    split(at);
    split(at + size);
    std::map<uintptr_t, Span> history;
    for (auto span = spans.lower_bound(at); span != spans.end() && span->first < at + size;
         ++span) {
        history[name_of + (span->first - at)] = span->second;
    }
    spans.insert(history.begin(), history.end());
    name(at, size, name_of);
    for (const Owner &owner : owners({{at, size, true}})) {
        const Block block = blocks.at(owner.at);
        const uintptr_t start = std::max(at, owner.at);
        const uintptr_t end = std::min(at + size, owner.at + block.size);
        blocks[name_of + (start - at)] = Block{end - start, block.number, block.to};
    }
}

void Oracle::unname(uintptr_t at, size_t size) {
    const uintptr_t name = names[at].name;
    names.erase(at);
    if (is_away) {
        blocks.erase(blocks.lower_bound(name), blocks.lower_bound(name + size));
        return;
    }
    for (const Owner &owner : owners({{at, size, true}})) {
        const Block &block = blocks.at(owner.at);
        fault(text_of(at, size) + " are unmapped while " + text_of(owner.at, block.size) +
              " belong to " + block.to);
    }
}

} // namespace oracle
