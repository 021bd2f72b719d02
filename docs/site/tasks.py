"""What people search for, and the heading that answers it: entries of the index, which the search lists first."""

TASKS = {
    "docs/guide/faq.md": {
        "What happens at a double free?": ["double free", "free twice"],
        "Why does resident memory stay high after I freed all?": ["resident memory", "memory not released", "RSS"],
        "How do I limit the memory of a part of my program?": ["memory limit", "limit memory"],
        "Are huge pages used?": ["huge pages", "hugepages", "hugetlbfs"],
        "Does the library start threads?": ["background threads"],
        "How do I find out which pool a pointer belongs to?": ["owner of a pointer"],
        "Do valgrind and AddressSanitizer work?": ["valgrind", "AddressSanitizer"],
    },
    "docs/guide/mistakes.md": {
        "Building and starting": ["cannot open shared object file", "undefined symbol"],
        "Calls": ["use after free", "invalid free"],
    },
    "docs/guide/leaks.md": {
        "Which pool grows": ["memory grows", "memory leak"],
        "Leak or cache": ["leak or cache"],
        "Which allocation": ["which allocation leaks"],
    },
    "docs/guide/memory.md": {
        "Before an allocation fails": ["out of memory", "allocation fails"],
        "Groups": ["limit several pools", "shared limit"],
    },
    "docs/guide/releasing.md": {
        "A trim": ["trim", "release memory"],
        "Growth": ["fragmentation"],
        "Decay": ["idle memory", "memory stays high"],
    },
    "docs/guide/creation.md": {
        "Settings of each kind": ["settings of a pool", "settings of a provider"],
        "The grammar": ["creation text"],
    },
    "docs/guide/counters.md": {
        "Every pool": ["counters of a pool", "statistics"],
        "Every provider": ["counters of a provider", "peak memory"],
        "How a path finds an object": ["umfCtlGet", "paths of settings"],
    },
    "docs/guide/configuration.md": {
        "Environment variables": ["environment variables"],
        "UMF_CONF and UMF_CONF_FILE": ["configuration file"],
    },
    "docs/guide/lifecycle.md": {
        "Threads": ["thread safety", "thread-safe"],
        "fork": ["fork"],
        "Signal handlers": ["signal handler"],
    },
    "docs/guide/numa.md": {
        "NUMA modes": ["NUMA", "bind to a node", "interleave"],
        "A DAX device": ["persistent memory", "CXL"],
    },
    "docs/guide/sharing.md": {
        "Rules": ["share memory", "shared memory between processes"],
    },
    "docs/guide/streams.md": {
        "Graphs": ["CUDA graphs", "capture"],
        "Three mistakes people make": ["free before the kernel has completed"],
    },
    "docs/guide/errors.md": {
        "The log": ["logging", "UMF_LOG"],
        "Why a call failed": ["error message", "error codes"],
    },
    "docs/guide/malloc.md": {
        "Use by a program": ["replace malloc", "LD_PRELOAD"],
    },
    "docs/guide/building.md": {
        "Installing": ["install", "pkg-config", "find_package"],
        "For work on the library": ["build options"],
    },
    "docs/guide/suspend.md": {
        "Content": ["sleep mode", "offload GPU memory"],
    },
}


def with_index(path, text):
    """The text of a page with entries of the index in front of the headings."""
    for heading, words in TASKS.get(path, {}).items():
        line = "\n## %s\n" % heading
        if text.count(line) != 1:
            raise ValueError("%s has no heading '%s': docs/site/tasks.py names it" % (path, heading))
        entries = "".join("\n```{index} single: %s\n```\n" % word for word in words)
        text = text.replace(line, entries + line)
    return text
