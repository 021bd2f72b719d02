"""``python -m umf``: the library's version, and which kinds work on this machine."""

from . import info


def main() -> None:
    """Prints the report of ``umf.info``."""
    report = info()
    lines = [f"libumf {report['version']}"]
    for what in ("providers", "pools"):
        lines += ["", f"{what}:"]
        lines += [f"  {kind:<20} {missing or 'works here'}" for kind, missing in report[what].items()]
    print("\n".join(lines))  # at once: a reader may close the pipe after some lines


main()
