"""Checks a site: site.py <include folder> <html folder>

Every public function, type, macro and value is in the reference; every link inside the site leads somewhere; no
page loads anything from the network; the search knows tasks, each picture of the guide has a text.
"""
import re
import sys
import urllib.parse
import zlib
from html.parser import HTMLParser
from pathlib import Path

LOADED = {"script", "img", "link", "iframe", "source"}


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.pictures_without_text = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.add(attributes.get("id"))
        target = attributes.get("href") or attributes.get("src")
        if tag == "img" and not attributes.get("alt"):
            self.pictures_without_text.append(target)
        if target:
            self.links.append((tag, target))


def public_names(include):
    for header in include.rglob("*.h"):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(), flags=re.DOTALL)
        text = re.sub(r"\\\n", " ", text)
        yield from re.findall(r"^#define (UMF_\w+)\b(?<!_H)", text, re.MULTILINE)
        text = re.sub(r"^#.*", "", text, flags=re.MULTILINE)
        yield from re.findall(r"\b(umf[A-Z]\w+)\s*\(", text)
        yield from re.findall(r"(?:^typedef .*|^} )\b\(?\*?(umf_\w+_t)\)?\s*(?:;|\()", text, re.MULTILINE)
        for values in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text):
            yield from re.findall(r"\b(UMF_\w+)\s*(?:=|,|$)", values, re.MULTILINE)


def described_names(inventory):
    """What Sphinx lists: four lines of head, then compressed lines `name domain:type ...`."""
    lines = zlib.decompress(inventory.read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    return {line.split()[0].rpartition(".")[2] for line in lines if " c:" in line}


def faults(include, html):
    names = set(public_names(include))
    for name in sorted(names - described_names(html / "objects.inv")):
        yield "%s is not in the reference" % name
    pages = {path: Page(path.read_text()) for path in html.rglob("*.html")}
    count = 0
    for path, page in pages.items():
        for tag, target in page.links:
            url = urllib.parse.urlsplit(target)
            place = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if url.scheme or url.netloc:
                if tag in LOADED:
                    yield "%s loads %s" % (path, target)
            elif not place.exists():
                yield "%s: link to %s leads nowhere" % (path, target)
            elif url.fragment and place in pages and url.fragment not in pages[place].anchors:
                yield "%s: link to %s: no such anchor" % (path, target)
            count += 1
    index = (html / "searchindex.js").read_text()
    for task in ("double free", "huge pages", "out of memory", "fork"):
        if '"%s":' % task not in index.partition('"indexentries":')[2].partition("}")[0]:
            yield "the search does not know the task '%s'" % task
    for path, page in pages.items():
        for picture in page.pictures_without_text:
            yield "%s: the picture %s has no text for those who cannot see it" % (path, picture)
    if not any("copy.js" in target for _, target in pages[html / "guide" / "faq.html"].links):
        yield "the pages have no copy.js"
    if len(names) < 100 or count < 1000:
        yield "only %d names and %d links found: are the patterns still right?" % (len(names), count)
    print("check_site: %d public names, %d pages, %d links" % (len(names), len(pages), count))


found = list(faults(Path(sys.argv[1]), Path(sys.argv[2]).resolve()))
for fault in found:
    print(fault)
sys.exit(bool(found))
