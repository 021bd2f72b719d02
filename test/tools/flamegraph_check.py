"""Opens stacks that umfctl wrote by a viewer of others: flamegraph_check.py <collapsed> <speedscope> <pprof> <function> <bytes at
the end>

The viewer is flamegraph-textual, which reads pprof by the message that Google's compiler made. Exit status 77: it is not there
(PYTHONPATH).
"""
import json
import sys

try:
    from flamegraph_textual.parsers import choose_parser
except ImportError:
    sys.exit(77)


def opened(path, kind, number=None):
    """(all, stacks): the names of the sample types, and the weights of each stack, outermost frame first."""
    with open(path, "rb") as file:
        data = file.read()
    if number is not None:  # the viewer shows the active one
        whole = json.loads(data)
        whole["activeProfileIndex"] = number
        data = json.dumps(whole).encode()
    parser = choose_parser(data)  # as the viewer does: by content
    assert parser.__name__ == kind, parser
    profile = parser(path).parse(data)
    stacks = {}

    def walk(frame, above):
        own = [value - sum(child.values[i] for child in frame.children) for i, value in enumerate(frame.values)]
        assert min(own) >= 0, (above, frame.values)
        if any(own):
            stacks[above] = own
        for child in frame.children:
            walk(child, above + (child.name,))

    walk(profile.root_stack, ())
    return profile.sample_types, stacks


def main():
    function, at_end = sys.argv[4], int(sys.argv[5])
    types, of_pprof = opened(sys.argv[3], "ProfileParser")
    assert [(one.sample_type, one.sample_unit) for one in types] == [
        ("live", "bytes"),
        ("peak", "bytes"),
        ("allocated", "bytes"),
        ("allocations", "count"),
    ], types
    for number in range(len(types)):
        _, of_speedscope = opened(sys.argv[2], "SpeedscopeParser", number)
        assert of_speedscope == {stack: [own[number]] for stack, own in of_pprof.items() if own[number]}, number
    _, of_collapsed = opened(sys.argv[1], "StackCollapseParser")
    assert of_collapsed == {stack: [own[1]] for stack, own in of_pprof.items() if own[1]}
    live = sum(own[0] for stack, own in of_pprof.items() if any(name.startswith(function + " (") for name in stack))
    assert live == at_end, (live, of_pprof)


main()
