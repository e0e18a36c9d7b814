# SPDX-License-Identifier: MIT
# usage: links.py SITE: every link in its pages and in index.js leads to a page and a part that are there, all that a page loads is
# in SITE, no page is without a link to it, no name of a part comes twice, and elements end in their order.
import html.parser
import json
import pathlib
import sys

VOID = {"meta", "link", "br", "img", "input", "hr", "col", "wbr"}
# For readers who follow them.
OUTSIDE = ("https://ui.perfetto.dev", "https://scipy.org", "mailto:")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.loads, self.open, self.faults = [], [], [], [], []
        self.feed(text)
        self.close()
        if self.open:
            self.faults.append(f"<{self.open[-1]}> does not end")

    def handle_starttag(self, tag, attributes):
        self.handle_startendtag(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        values = dict(attributes)
        self.names += [values["id"]] if "id" in values else []
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link":
            self.loads.append(values["href"])
        elif "src" in values:
            self.loads.append(values["src"])

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}> ends something else")


def main():
    site = pathlib.Path(sys.argv[1])
    pages = {path.name: Page(path.read_text()) for path in site.glob("*.html")}
    index = (site / "index.js").read_text()
    found = json.loads(index[index.index("["):].rstrip().rstrip(";"))
    links = [(name, link) for name, page in pages.items() for link in page.links]
    links += [("index.js", f"{part[0]}#{part[2]}" if part[2] else part[0]) for part in found]
    faults = [(name, fault) for name, page in pages.items() for fault in page.faults]
    reached = {"index.html"}
    for name, link in links:
        file, _, part = link.partition("#")
        file = file or name
        reached.add(file)
        if link.startswith(OUTSIDE):
            continue
        if file not in pages or part and part not in pages[file].names:
            faults.append((name, link))
    faults += [(name, load) for name, page in pages.items() for load in page.loads if not (site / load).is_file()]
    faults += [(name, f"id {part} comes twice") for name, page in pages.items() for part in set(page.names) if page.names.count(part) > 1]
    faults += [(name, "no page leads here") for name in pages if name not in reached]
    for name, fault in sorted(set(faults)):
        print(f"{name}: {fault}")
    print(f"{len(links)} links lead somewhere" if not faults else "links that lead nowhere, or pages that are not well-formed")
    sys.exit(bool(faults) or not links)


main()
