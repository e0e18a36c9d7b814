#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# usage: site.py OUTPUT DDPREPORT [RUNS]
#
# Writes the site: the tutorial, README.md, NEWS, bench/README and the manual pages, as HTML that needs nothing from elsewhere.
# Figures are what DDPREPORT (a program) draws from the logs in RUNS, by default those of doc/tutorial. `make html` calls this.
# It needs cmark-gfm and mandoc.
#
# In the tutorial an image names what is drawn: report:FIGURE,.../LOG/... are figures of a page of ddpreport, compare:FIGURE,.../PAGE
# those of a page that ddpreport compare wrote, and trace:FILE is a picture of a trace.
import html
import json
import pathlib
import re
import subprocess
import sys
import tempfile

DOC = pathlib.Path(__file__).resolve().parent
SOURCE = DOC.parent
# What ddpreport calls its figures, and the colours it has for kinds of time.
FIGURES = {"loss": "loss", "accuracy": "test accuracy", "rate": "learning rate", "speed": r"\w+/s", "norm": "gradient norm"}
COMPARED = {"time": "Time of a step", "speed-up": "Speed-up", "memory": "Memory of a worker"}
MODES = "doc/modes.svg"  # the picture in README.md, of the logs beside it
COLOURS = {"forward": "c0", "backward": "c1", "update": "c2", "bucket": "c3", "wait": "c4"}


def fail(text):
    sys.exit(f"site.py: error: {text}")


def output(*command, **options):
    try:
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout
    except FileNotFoundError:
        fail(f"{command[0]} is not installed: install Debian's packages cmark-gfm and mandoc")
    except subprocess.CalledProcessError as error:
        fail(f"{' '.join(map(str, command))}: exit status {error.returncode}")


def plain(fragment):
    """The text of HTML."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</(p|dt|dd|li|td|th|tr|pre)>", " ", fragment))).split())


class Report:
    """A page of ddpreport, in parts."""

    def __init__(self, path):
        self.page = path.read_text()
        self.style = self.part(r"<style>\n(.*?)</style>")
        self.scripts = re.findall(r"<script>\n(.*?)</script>", self.page, re.S)

    def part(self, pattern):
        found = re.search(pattern, self.page, re.S)
        return found.group(1) if found else fail(f"a page of ddpreport has no {pattern}")

    def figures(self, names):
        """Of a report: the legend, with what it switches, and these figures."""
        legend = self.page[self.page.index("<style>\nbody:has"):self.page.index('<div class="charts">')]
        found = [self.part(rf"(<figure><figcaption>{FIGURES[name]}.*?</figure>)") for name in names]
        return legend + '<div class="charts">' + "".join(found) + "</div>"

    def compared(self, names):
        """Of a comparison: these figures."""
        found = [re.search(rf"<h2>({COMPARED[name]}[^<]*)</h2>\n(.*?)(?=<h2>|<p><small>)", self.page, re.S) for name in names]
        return "".join(f"<figure><figcaption>{part.group(1)}</figcaption>\n{part.group(2)}</figure>" for part in found)


def trace_figure(path):
    """The threads that compute, from above to below by rank, and below each the buckets while they are reduced."""
    events = json.loads(path.read_text())
    begin = min(event["ts"] for event in events)
    span = max(event["ts"] + event.get("dur", 0) for event in events) - begin
    lanes, opened = [], {}

    def bar(kind, start, end, row):
        return (f'<i class="{COLOURS[kind]}" style="left:{100 * (start - begin) / span:.2f}%;width:{100 * (end - start) / span:.2f}%;'
                f'top:{row}rem" title="{kind}: {(end - start) / 1000:.2f} ms"></i>')

    for rank in sorted({event["pid"] for event in events}):
        bars, row = "", 1.6
        for event in sorted((event for event in events if event["pid"] == rank), key=lambda event: event["ts"]):
            if event["ph"] == "X":
                bars += bar(event["name"], event["ts"], event["ts"] + event["dur"], 0)
            elif event["ph"] == "b":
                opened[event["id2"]["local"]] = event["ts"]
            else:
                bars += bar("bucket", opened.pop(event["id2"]["local"]), event["ts"], row)
                row += 0.5
        lanes.append(f'<b>rank {rank}</b><div class="lane" style="height:{row + 0.3:.1f}rem">{bars}</div>')
    key = "".join(f'<i class="{colour}"></i>{kind}' for kind, colour in COLOURS.items())
    ends = f'<p class="axis">0 to {span / 1000:.1f} ms</p>'
    return f'<p class="key">{key}</p><div class="trace">{"".join(lanes)}</div>{ends}'


class Site:
    def __init__(self, out, ddpreport, runs):
        self.out, self.ddpreport, self.runs = out, ddpreport, runs
        self.pages = []  # (file, group, title, body)
        self.scripts = []
        self.manuals = sorted((SOURCE / "man").glob("*.[1-9]"), key=lambda page: (page.suffix, page.name))
        self.where = {}  # of what a page of section 3 describes, its file
        for page in self.manuals:
            names = re.search(r"^\.Sh NAME\n(.*?)^\.Nd", page.read_text(), re.S | re.M).group(1)
            for name in re.findall(r"^\.Nm ([\w-]+)", names, re.M):
                self.where[f"{name}{page.suffix}.html"] = f"{page.name}.html"

    def report(self, logs):
        with tempfile.TemporaryDirectory() as scratch:
            page = pathlib.Path(scratch, "report.html")
            output(self.ddpreport, *logs, "-o", str(page))
            return Report(page)

    def figure(self, match):
        kind, _, what = html.unescape(match.group(1)).partition(":")
        caption = f"<figcaption>{match.group(2)}</figcaption>"
        if kind == "trace":
            drawn = trace_figure(self.runs / what)
        elif kind == "compare":
            names, page = what.split("/")
            drawn = Report(self.runs / page).compared(names.split(","))
        elif kind == "report":
            names, *logs = what.split("/")
            report = self.report([str(self.runs / log) for log in logs])
            self.scripts = report.scripts
            drawn = report.figures(names.split(","))
        elif what or kind != MODES:
            fail(f"{match.group(1)}: a picture that nothing draws")
        else:
            report = self.report([str(log) for log in sorted(DOC.glob("*.jsonl"))])
            self.scripts = report.scripts
            drawn = report.figures(("loss", "speed"))
        return f'<figure class="drawn">{drawn}{caption}</figure>'

    def markdown(self, text, file, group, title=None):
        body = output("cmark-gfm", "-e", "table", input=text)
        seen = {}

        def heading(match):
            name = re.sub(r"[^a-z0-9]+", "-", plain(match.group(2)).lower()).strip("-")
            seen[name] = seen.get(name, 0) + 1
            name += f"-{seen[name]}" if seen[name] > 1 else ""
            return f'<h{match.group(1)} id="{name}">{match.group(2)}</h{match.group(1)}>'

        body = re.sub(r"<h(\d)>(.*?)</h\1>", heading, body)
        self.scripts = []
        body = re.sub(r'<p><img src="([^"]*)" alt="([^"]*)" /></p>', self.figure, body)
        body = body.replace("<table>", '<div class="scroll"><table class="text">').replace("</table>", "</table></div>")
        if self.scripts:
            body += '<script src="report.js"></script>'
        self.add(file, group, title or plain(re.search(r"<h1.*?</h1>", body).group(0)), body)

    def manual(self, page):
        body = output("mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", str(page))

        def link(match):
            target = self.where.get(match.group(1))
            return f'<a class="Xr" href="{target}">{match.group(2)}</a>' if target else match.group(2)

        body = re.sub(r'<a class="Xr" href="([^"]*)">(.*?)</a>', link, body, flags=re.S)
        # Of headings of its own, the page's is the first.
        body = re.sub(r'<h([12]) class="S([hs])"(.*?)</h\1>', lambda m: f'<h{"23"["hs".index(m.group(2))]} class="S{m.group(2)}"{m.group(3)}'
                      f'</h{"23"["hs".index(m.group(2))]}>', body, flags=re.S)
        title = f"{page.stem}({page.suffix[1:]})"
        body = re.sub(r'<table class="head">.*?</table>', "", body, flags=re.S)
        body = re.sub(r'<table class="foot">.*?</table>', "", body, flags=re.S)
        body = re.sub(r'<table class="Bl.*?</table>', lambda m: f'<div class="scroll">{m.group(0)}</div>', body, flags=re.S)
        self.add(f"{page.name}.html", "Manual pages", title, f"<h1>{title}</h1>{body}")

    def sections(self):
        """Pages also name sections of other pages: these links lead there, and those that could lead to several nowhere."""
        where = {}
        for file, _, _, body in self.pages:
            for name in re.findall(r'<h[23] class="S[hs]" id="([^"]*)"', body):
                where.setdefault(name, []).append(file)

        for number, (file, group, title, body) in enumerate(self.pages):
            def link(match):
                files = where.get(match.group(1), [])
                target = file if file in files else files[0] if len(files) == 1 else None
                return f'<a class="Sx" href="{target}#{match.group(1)}">{match.group(2)}</a>' if target else match.group(2)

            self.pages[number] = (file, group, title, re.sub(r'<a class="Sx" href="#([^"]*)">(.*?)</a>', link, body, flags=re.S))

    def text(self, path, file, title):
        """A text whose layout is its own."""
        self.add(file, "About", title, f"<h1>{title}</h1><pre>{html.escape(path.read_text())}</pre>")

    def readme(self):
        """The first page, which leads to the tutorial and to what it names at its end."""
        self.markdown((SOURCE / "README.md").read_text(), "index.html", "ddprun", "Overview")
        named = {page.stem: f"{page.name}.html" for page in self.manuals}
        named.update({"NEWS": "news.html", "bench/README": "bench.html", "make html": self.pages[0][0]})
        file, group, title, body = self.pages.pop()
        body = body.replace("</h1>", f'</h1>\n<p>New here? Begin with <a href="{self.pages[0][0]}">the tutorial</a>.</p>', 1)
        body, mark, end = body.partition('<h2 id="read-on">')
        end = re.sub(r"<code>((?:man )?([\w/ -]+))</code>",
                     lambda m: f'<a href="{named[m.group(2)]}">{m.group(0)}</a>' if m.group(2) in named else m.group(0), end)
        self.pages.insert(0, (file, group, title, body + mark + end))

    def news(self):
        """NEWS as Markdown: versions, areas, items, as deep as they are indented."""
        first, _, rest = (SOURCE / "NEWS").read_text().partition("\n\n")
        rest = re.sub(r"([<_`\[\]])", r"\\\1", rest)
        rest = re.sub(r"^(\S.*)$", r"## \1\n", rest, flags=re.M)
        rest = re.sub(r"^  (\w.*):$", r"\n### \1\n", rest, flags=re.M)
        rest = re.sub(r"^  \* ", r"- ", rest, flags=re.M)
        rest = re.sub(r"^    ", r"  ", rest, flags=re.M)
        self.markdown(f"# {first}\n\n{rest}", "news.html", "About", "NEWS")

    def add(self, file, group, title, body):
        self.pages.append((file, group, title, body))

    def menu(self, here, body):
        parts, group = [], None
        for file, its_group, title, _ in self.pages:
            if its_group != group:
                parts.append(f"<h2>{its_group}</h2>")
                group = its_group
            mark = ' aria-current="page"' if file == here else ""
            parts.append(f'<a href="{file}"{mark}>{title}</a>')
            if file == here:
                parts += [f'<a class="part" href="#{name}">{plain(text)}</a>'
                          for name, text in re.findall(r'<h2[^>]* id="([^"]*)"[^>]*>(.*?)</h2>', body, re.S)]
        return "".join(parts)

    def write_page(self, number):
        file, group, title, body = self.pages[number]
        near = []
        if group == "Tutorial":
            for step, word, relation in (-1, "Before", "prev"), (1, "Next", "next"):
                if 0 <= number + step < len(self.pages) and self.pages[number + step][1] == group:
                    other = self.pages[number + step]
                    near.append(f'<a rel="{relation}" href="{other[0]}">{word}: {other[2]}</a>')
        (self.out / file).write_text(
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
            f'<meta name="viewport" content="width=device-width"/>\n<title>{title} - ddprun</title>\n'
            f'<link rel="stylesheet" href="site.css"/>\n</head>\n<body class="site">\n'
            f'<header><a href="index.html">ddprun</a><a class="narrow" href="#menu">Contents</a>'
            f'<form><input type="search" name="q" placeholder="Search" aria-label="Search" autocomplete="off"/></form></header>\n'
            f'<div id="found" hidden="hidden"></div>\n<main>\n{body}\n<p class="near">{"".join(near)}</p></main>\n'
            f'<nav id="menu">{self.menu(file, body)}</nav>\n<script src="site.js"></script>\n</body>\n</html>\n')

    def index(self):
        """What is found: the parts of all pages, each from one heading or option to the next."""
        parts = []
        for file, _, title, body in self.pages:
            body = re.sub(r'<(style|svg|figure class="drawn")\b.*?</\1>', "", body, flags=re.S)
            for piece in re.split(r'(?=<h[1-3]\b[^>]*>|<dt id=)', body):
                start = re.match(r"<(h[1-3]|dt)\b(?:[^>]* id=\"([^\"]*)\")?[^>]*>(.*?)</\1>", piece, re.S)
                text = plain(piece[start.end():] if start else piece)
                if start or text:
                    parts.append([file, title, (start and start.group(2)) or "", plain(start.group(3)) if start else title, text])
        return "const index = " + json.dumps(parts, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[") + ";\n"

    def write(self):
        self.out.mkdir(parents=True, exist_ok=True)
        for page in sorted((DOC / "tutorial").glob("*.md")):
            self.markdown(page.read_text(), f"{page.stem}.html", "Tutorial")
        self.readme()
        self.news()
        self.text(SOURCE / "bench/README", "bench.html", "Benchmarks")
        for page in self.manuals:
            self.manual(page)
        self.sections()
        for number in range(len(self.pages)):
            self.write_page(number)
        report = self.report([str(log) for log in sorted(DOC.glob("*.jsonl"))])
        (self.out / "site.css").write_text(report.style + (DOC / "site.css").read_text())
        (self.out / "report.js").write_text("".join(report.scripts))
        (self.out / "site.js").write_bytes((DOC / "site.js").read_bytes())
        (self.out / "index.js").write_text(self.index())


def main():
    if len(sys.argv) not in (3, 4):
        fail("usage: site.py OUTPUT DDPREPORT [RUNS]")
    Site(pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]) if len(sys.argv) == 4 else DOC / "tutorial").write()


main()
