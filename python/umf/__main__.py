"""``python -m umf``: the library's version, and which kinds work on this machine."""

from . import info


def main() -> None:
    """Prints the report of ``umf.info``."""
    report = info()
    print("libumf", report["version"])
    for what in ("providers", "pools"):
        print(f"\n{what}:")
        for kind, missing in report[what].items():
            print(f"  {kind:<20} {'works here' if missing is None else missing}")


main()
