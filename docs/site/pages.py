"""Lays out what Sphinx reads: the Markdown of the repository, a page for each public header and each example.

The order of links in docs/guide.md and docs/reference.md is the order of the navigation. What they leave out is
in no list, and Sphinx reports it.
"""
import os
import re
from pathlib import Path

from tasks import with_index

ROOT = Path(__file__).resolve().parents[2]
TOP = {
    "README.md": "readme",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "benchmark/README.md": "benchmark",
}
INSIDE = ["ARCHITECTURE", "decisions", "results", "recording", "ipc", "ipc-security", "vault", "Benchmarks </benchmark>", "contributing"]
WHOLE_NAMESPACE = "\n```{doxygennamespace} umf\n:members:\n```\n"  # of C++: all of its headers
LINK = re.compile(r"```.*?```|(?P<image>!?)\[(?P<words>[^][]*)\]\((?P<target>[^()\s]+)\)|`[^`\n]*`", re.DOTALL)


def found(pattern):
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(pattern))


def page_of(path):
    """The page that shows a file or folder of the repository; None if none does."""
    if path in TOP:
        return TOP[path]
    if re.fullmatch(r"docs/.*\.md", path):
        return path[5:-3]
    if re.fullmatch(r"include/.*\.h(pp)?", path):
        return "reference/" + path[8:].replace(".hpp", "_hpp").removesuffix(".h")
    if re.fullmatch(r"examples/.*\.(c|h|cpp|cu)", path):
        return path.replace(".", "_")
    if re.fullmatch(r"examples(/plugin)?", path):
        return "examples"
    return None


def links(text):
    """Words and target of each link in a Markdown text."""
    return [(m["words"], m["target"]) for m in LINK.finditer(text) if m["target"] and not m["image"]]


def headers(text):
    """Words and path of each public header that a part of docs/reference.md links to."""
    return [(words, target[3:]) for words, target in links(text) if target.startswith("../include/")]


def with_site_links(text, folder, page):
    """The text with links as the page needs them. In the repository it lies in the folder."""

    def replace(match):
        target = match["target"]
        if not target or "://" in target or target.startswith("#"):
            return match[0]
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(folder, path))
        shown = page_of(path)
        if not shown and not path.startswith("docs/"):
            return match["words"]  # not on the site
        place = os.path.relpath(shown + ".md" if shown else path[5:], os.path.dirname(page) or ".")
        return "%s[%s](%s%s)" % (match["image"], match["words"], place, anchor and "#" + anchor)

    return LINK.sub(replace, text)


def toctree(pages, option=":hidden:"):
    pages = "\n".join(page if "<" in page else "/" + page for page in pages)
    return "\n```{toctree}\n%s\n\n%s\n```\n" % (option, pages)


def titled(caption, pages):
    return toctree(pages, ":hidden:\n:caption: " + caption)


def navigation(reference):
    """The lists of the landing page."""
    guide = [page_of("docs/" + target) for _, target in links((ROOT / "docs/guide.md").read_text())
             if re.fullmatch(r"(guide|python)/[\w-]+\.md", target)]
    start = ["Overview </guide>", "At a glance </readme>"]
    return (titled("Guide", start + list(dict.fromkeys(guide)) + ["examples", "changelog"])
            + titled("Reference", ["All headers </reference>"] + reference)
            + titled("Inside", INSIDE))


def copied_pages():
    """Page, folder of the repository, and text of all Markdown."""
    for path in list(TOP) + found("docs/*.md") + found("docs/guide/**/*.md") + found("docs/python/*.md"):
        yield page_of(path), os.path.dirname(path), with_index(path, (ROOT / path).read_text())


def reference_pages():
    """A page for each part of docs/reference.md, and below it one for each header."""
    parts = re.split(r"^## (.*)\n", (ROOT / "docs/reference.md").read_text(), flags=re.MULTILINE)
    for title, text in zip(parts[1::2], parts[2::2]):
        pages = toctree([page_of(path) for _, path in headers(text)])
        yield "reference/" + re.sub(r"\W+", "-", title.lower()), "docs", "# %s\n%s%s" % (title, text, pages)
        for words, path in headers(text):
            label = path.rpartition("/")[2].replace("_", "__").replace(".", "_8")  # Doxygen's name of it
            yield page_of(path), "", (
                "(%s)=\n# %s\n\n```cpp\n#include <%s>\n```\n\n```{doxygenfile} %s\n```\n%s"
                % (label, words, path[8:], path, WHOLE_NAMESPACE if path == "include/umf/umf.hpp" else ""))


def example_pages():
    paths = sorted(found("examples/**/*.[ch]") + found("examples/*.cpp") + found("examples/*.cu"))
    yield "examples", "", "# Examples\n" + toctree([page_of(path) for path in paths], ":titlesonly:")
    for path in paths:
        yield page_of(path), "", "# %s\n\n```cpp\n%s```\n" % (path[9:], (ROOT / path).read_text())


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def lay_out(app):
    source = Path(app.srcdir)
    reference = list(reference_pages())
    groups = [page for page, folder, _ in reference if folder]
    for page, folder, text in [*copied_pages(), *reference, *example_pages()]:
        text = with_site_links(text, folder, page)
        write(source / (page + ".md"), (text + navigation(groups) if page == "index" else text).encode())
    for path in found("docs/**/*.svg") + found("docs/**/*.png"):
        write(source / path[5:], (ROOT / path).read_bytes())


def setup(app):
    app.connect("builder-inited", lay_out)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
