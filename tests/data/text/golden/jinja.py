#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
#
# What Jinja makes of templates, set up as transformers does it.
#   pip install jinja2
#   jinja.py write FILE                     makes golden/jinja.txt: a list of data, then on each line a template, which data, and
#                                           the text (null: refused)
#   jinja.py compare TOOL [TEMPLATE ...]    compares tokenizer_tool, with these too and those of packages that are installed here
import datetime
import glob
import json
import os
import subprocess
import sys

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


def user(text):
    return {"role": "user", "content": text}


def says(text, **more):
    return {"role": "assistant", "content": text, **more}


CALL = {"type": "function", "id": "c1", "function": {"name": "weather", "arguments": {"city": "Zürich \"1\"", "n": 3, "x": [1, 2.5, None, True]}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "Of <b>a</b> city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "n": {"type": ["integer", "null"], "default": 1e-7}}, "required": ["city"]}}}
CHATS = [
    [user("Hi")], [user(" Hi  there\n"), says("\nHello é世"), user(""), says("")], [{"role": "system", "content": "Be brief."}, user("a"), says("b")],
    [user("q"), says("<think>\nwhy\n</think>\n\nans"), user("q2"), says("<think>\nx</think>ans2", reasoning_content="so")],
    [user("w?"), says("", tool_calls=[CALL, CALL]), {"role": "tool", "content": "sunny", "name": "weather"}, says("It's \"sunny\" \\ now")],
    [says("first")], [user("a"), user("b")], [],
]
LOOP = "{% for m in messages %}"
# What stands between the parts is there for the rules of white space.
TEMPLATES = [
    LOOP + "{{ m.role ~ ': ' + m['content'] }}\n{% endfor %}\n\n",
    "a\n  {% if true %}\n  b\n  {%- endif -%}\n  c\n {#- no -#}\n d {{- ' e ' -}} f\n\t{%+ if true +%}\n g{% endif %}\n\n {# x #}\nh",
    "  {% if true %}\n  {% set a = 1 %}\n  x{{ a }}\n  {# c #}\n  {% endif %}",
    "{%- set ns = namespace(n=0, names=[]) %}{% for m in messages if m.content %}{% set ns.n = ns.n + loop.index %}{% set ns.names = ns.names + [m.role] %}"
    "{% set x = loop.index0 %}{% else %}none{% endfor %}{{ ns.n }}{{ ns.names }}{{ x is defined }}{{ ns.names | join(',') }}",
    LOOP + "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.previtem.role }}{{ loop.nextitem is defined }};{% endfor %}",
    "{% macro turn(role, text='-', end='|') %}{{ '<' + role + '>' }}{{ text | trim }}{{ end }}{% endmacro %}" + LOOP
    + "{{ turn(m.role, m.content) }}{{ turn(end='!', role=m.role | upper) }}{% endfor %}",
    LOOP + "{% if '</think>' in m.content %}{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}/"
    "{{ m.content.split('</think>')[-1].strip() }}{% else %}{{ m.content[:2] }}|{{ m.content[-3:-1] }}|{{ m.content[::-1] }}|{{ m.content | length }}{% endif %}{% endfor %}",
    "{% if tools %}{{ tools | tojson }}\n{{ tools | tojson(indent=2) }}{{ tools[0].function | tojson(separators=(',', ':'), sort_keys=true) }}{% for t in tools %}"
    "{% for k, v in t.function.parameters.properties.items() %}{{ k }}={{ v }};{% endfor %}{{ t.function | dictsort }}{% endfor %}{% endif %}{{ messages | tojson(ensure_ascii=True) }}",
    LOOP + "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c['function']['arguments'] | tojson }}{{ c.function.arguments.x | map('string') | list }}{% endfor %}"
    "{{ m.tool_calls | selectattr('type', 'equalto', 'function') | map(attribute='id') | join('+') if m.tool_calls is defined }}{% endfor %}",
    LOOP + "{% if loop.index0 % 2 != (m.role == 'assistant') | int %}{{ raise_exception('Roles must alternate, not ' + m.role) }}{% endif %}{{ m.content }}{% endfor %}",
    LOOP + "{% if m.role == 'system' %}{% continue %}{% elif loop.index > 2 %}{% break %}{% endif %}{{ m.content | replace('i', 'I') }}{% endfor %}",
    "{{ 1 + 2 * 3 - 7 // 2 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 1 < 2 <= 2 }} {{ not 1 == 2 and 'x' or 'y' }} {{ 1.0 }} {{ 0.1 + 0.2 }}"
    "{{ 'ab' * 3 }}",
    "{{ 0.1 + 0.2 }} {{ 1.0 * 100000 }} {{ 1.0 / 3 }} {{ 1.0 / 100000 }} {{ 100000.0 * 1000000000000 }} {{ [1, 2] + [3] }} {{ (1, 'a') }} {{ (1,) }} {{ {'a': [none, true]} }}",
    "{{ x is defined }}{{ x }}{{ x | default('d') }}{{ '' | default('e', true) }}{{ none is none }}{{ messages is sequence }}{{ messages is mapping }}{{ 'a' is string }}"
    "{{ 3 is odd }}{{ 4 is divisibleby 2 }}{{ tools is none }}{{ 1 is in [1, 2] }}{{ x is not defined }}{{ true is boolean }}{{ 1.5 is number }}{{ x is iterable }}",
    "{{ x.y }}", "{{ messages[9].role }}", "{{ 'a' + 1 }}", "{{ messages | nothing }}", "{{ messages.append(1) }}", "{% set messages.x = 1 %}", "{{ [1][5] }}", "{{ 1 / 0 }}",
    "{% if %}", "{{ 'a }}", "{% for x in %}{% endfor %}", "{% endif %}", "{{ 1 +", "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}", "{{ range(3) | list }}{{ range(4, 1, -2) | list }}",
    "{% set a %}x{{ 1 }}\n{% endset %}{{ a | upper | trim }}{% set b, c = 1, 2 %}{{ b + c }}{{ 'x' \"y\" 'z\\n\\u00e9\\x41\\q' }}",
    "{{ ' a b  c '.split() }}{{ 'a,b,,c'.split(',', 1) }}{{ 'a.b.c'.rsplit('.', 1) }}{{ 'abc'.startswith(('x', 'a')) }}{{ 'abc'.endswith('c') }}{{ 'IT is an a-b'.title() }}{{ 'xax'.strip('x') }}"
    "{{ ['b', 'A', 'c'] | sort | join }}{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}{{ 'a b' | capitalize }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ [1, 2] | reverse | list }}",
    "{{ 'a\\nb\\n\\nc' | indent(2) }}{{ 'a\\nb' | indent(1, true) }}{{ '12' | int + 1 }}{{ 'abc'.find('c') }}{{ '-'.join(['a', 'b']) }}{{ {'a': 1}.get('b', 2) }}{{ {'a': 1} | length }}",
    "{{ strftime_now('%d %b %Y') }}{{ {'b': 1, 'a': 2} | dictsort }}{{ dict(a=1).items() | list }}{{ {'a': 1}.keys() | list }}{{ {'items': 3}['items'] }}{{ \"it's\" | list }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ [[1, 2]] | map('first') | list }}{{ ['a', ''] | select | list }}{{ [1, 2] | reject('odd') | list }}",
    LOOP + "{% if m.role == 'assistant' %}<{% generation %}{{ m.content }}.{% endgeneration %}>{% endif %}{% endfor %}{% if add_generation_prompt %}<{% endif %}{{ bos_token }}",
    "{{ {'a': 1}['a'] }}{{ {'k': {'z': '}}'}}.k.z }}{{ messages | length if messages else 'no' }}{{ f(*[1]) if false }}{{ [1, 2, 3][1:] }}{{ [1, 2, 3, 4][::2] }}{{ 'ab'[5:] }}",
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("mark"), [], [], body).set_lineno(line)

    def mark(self, caller):
        return caller()


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: datetime.datetime(2024, 7, 26).strftime(form)
    return made


def all_data():
    for number, chat in enumerate(CHATS):
        yield {"messages": chat, "tools": [TOOL] if number % 2 else None, "add_generation_prompt": number % 3 == 0, "bos_token": "<s>", "eos_token": "</s>"}


def cases(templates):
    for template in templates:
        for number, data in enumerate(all_data()):
            if number > 0 and "messages" not in template:
                break
            try:
                text = environment().from_string(template).render(**data)
            except Exception:  # whatever it is, it is refused
                text = None
            yield {"template": template, "data": data, "number": number, "text": text}


def compare(tool, templates):
    bad = count = 0
    for template in templates:
        expected = list(cases([template]))
        lines = "".join(json.dumps(case) + "\n" for case in expected)
        got = subprocess.run([tool, "jinja"], input=lines, capture_output=True, encoding="utf-8", check=True).stdout.splitlines()
        for case, line in zip(expected, got):
            count += 1
            if json.loads(line) != case["text"]:
                bad += 1
                print("differs:", ascii(template[:300]), ascii(case["text"]), ascii(line), sep="\n  ")
    print(len(templates), "templates,", count, "texts,", bad, "differ")
    return bad


if sys.argv[1] == "write":
    with open(sys.argv[2], "w") as out:
        out.write(json.dumps(list(all_data()), ensure_ascii=False) + "\n")
        for case in cases(TEMPLATES):
            out.write(json.dumps([case["template"], case["number"], case["text"]], ensure_ascii=False) + "\n")
else:
    found = sys.argv[3:] or sorted(path for folder in sys.path for path in glob.glob(os.path.join(glob.escape(folder), "*", "chat_templates", "*.jinja")))
    sys.exit(compare(sys.argv[2], TEMPLATES + [open(path, encoding="utf-8").read() for path in found]) != 0)
