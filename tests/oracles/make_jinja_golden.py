"""make_jinja_golden.py - writes tests/golden/chat/jinja.json: snippets of templates, and what transformers' jinja makes of them.

    tests/.venv/bin/python tests/oracles/make_jinja_golden.py

A row is [template, text], or [template, null] where jinja fails. The variables are those of VARIABLES, which the file
holds too. tests/runtime/chat/jinja_test.c reads it.
"""
import json
import pathlib
import re

from transformers.utils.chat_template_utils import _compile_jinja_template

VARIABLES = {
    "n": 7, "zero": 0, "neg": -3, "x": 2.5, "big": 10000000000000000.0, "tiny": 1e-7, "yes": True, "no": False, "none_v": None,
    "s": "Hello World", "e": "", "u": "ÀÉß ΑΣ ǆ 東京🙂", "sp": "  \t two words \n", "csv": "a,b,,c", "lines": "one\ntwo\r\nthree\n",
    "html": "<b> & \"q\" 'a'", "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "ll": [[1, 2], [3, 4]], "el": [], "ed": {},
    "d": {"b": 2, "a": 1, "C": {"x": [10, 20]}, "items": "own", "1": "one"},
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": " hi "}, {"role": "assistant", "content": None},
                 {"role": "user", "content": "bye", "extra": {"k": [1, {"z": 0}]}}],
    "mixed": [1, "1", 1.0, True, None, [1], {"a": 1}, "x"],
}

TABLE = """
{{ n }} {{ x }} {{ big }} {{ tiny }} {{ yes }} {{ none_v }} {{ missing }}|
{{ l }} {{ d }} {{ mixed }} {{ ll[1] }} {{ (1,) }} {{ (1, 2) }} {{ () }}
{{ [1.0, 1e16, 1e15, 123456789012345680.0, 0.1, 1e-4, 1e-5, 2.5e300] }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}
{{ 7.5 // 2 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 1e308 * 10 }} {{ 2 ** 0.5 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 - 3 - 4 }} {{ 2 + 3 * 4 }} {{ (2 + 3) * 4 }} {{ 100 // 7 // 2 }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ 1 + "a" }}
{{ "a" + 1 }}
{{ "a" ~ 1 ~ none ~ true ~ [1] ~ missing ~ 2.50 }}
{{ "ab" * 3 }} {{ 2 * "x" }} {{ [1] * 2 }} {{ "x" * 0 }} {{ "x" * -1 }}
{{ true + true }} {{ true == 1 }} {{ 1 == 1.0 }} {{ "1" == 1 }} {{ none == false }} {{ [] == () }} {{ [1] == [1.0] }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 > 1 }} {{ 1 == 1 != 2 }} {{ "a" < "b" }} {{ "Z" < "a" }} {{ [1, 2] < [1, 3] }}
{{ 1 < "a" }}
{{ none < 1 }}
{{ not 1 }} {{ not not 1 }} {{ not missing }} {{ 1 and 2 }} {{ 0 and 2 }} {{ 0 or "x" }} {{ "" or [] }} {{ 1 or missing.x }}
{{ not 1 == 2 }} {{ not 1 in [2] }} {{ 1 not in [2] }} {{ "el" in s }} {{ "a" in d }} {{ "zz" in d }} {{ 2 in l }} {{ 1 in () }}
{{ 1 in s }}
{{ "a" in missing }} {{ missing == missing2 }} {{ missing == none }} {{ missing is defined }} {{ missing|length }} {{ missing|list }}
{{ missing.x }}
{{ missing["x"] }}
{{ missing() }}
{{ missing + 1 }}
{{ missing < 1 }}
{{ -missing }}
{{ d.missing }}|{{ d["missing"] }}|{{ l[9] }}|{{ l["x"] }}|{{ s.missing }}|
{{ d.missing.more }}
{{ d.a }} {{ d["a"] }} {{ d.C.x[1] }} {{ d["C"]["x"][-1] }} {{ d["items"] }} {{ d.1 }} {{ d["1"] }}
{{ l[0] }} {{ l[-1] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::-1] }} {{ l[::2] }} {{ l[5:] }} {{ l[-2:] }} {{ l[2:0:-1] }} {{ l[True] }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ u[1:4] }} {{ u[::-1] }} {{ u[-1] }} {{ u[::2] }} {{ s[20:] }}| {{ s[:0] }}|
{{ l[::0] }}
{{ l["a":] }}
{{ d[1:] }}|
{{ 5[0] }}|{{ none_v.x }}|{{ none_v["x"] }}|{{ true.x }}|
{{ "a" if yes else "b" }} {{ "a" if no }}| {{ "a" if no else "b" if no else "c" }} {{ ("a" if no) is defined }}
{{ 1 if yes else missing.x }}
{{ [1, 2,] }} {{ {"a": 1, "b": [2],} }} {{ {1: 2, none: 3, true: 4, (1, 2): 5} }} {{ {"a": 1, "a": 2} }} {{ {} }}
{{ {[1]: 2} }}
{{ 'it\\'s' }} {{ "tab\\there" }} {{ "\\x41\\u00e9\\U0001F642\\101" }} {{ "a" "b" 'c' }} {{ '\\q' }}
{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 1.5e3 }} {{ 1e3 }} {{ 1_0.5 }} {{ 00 }}
{{ 1.x }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ "hELLO wORLD's".title() }} {{ "hELLO wORLD".capitalize() }} {{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ u.capitalize() }}
{{ "ΑΣ ΣΑΣ Σ ΑΣ'Σ.".lower() }} {{ "ŉ ﬁ ᾳ".upper() }} {{ "İ".lower() }}|
[{{ sp.strip() }}][{{ sp.lstrip() }}][{{ sp.rstrip() }}][{{ "xxaxx".strip("x") }}][{{ "abcab".strip("ab") }}][{{ "éaé".strip("é") }}][{{ "x".strip("") }}]
{{ csv.split(",") }} {{ sp.split() }} {{ csv.split(",", 1) }} {{ "a b  c".split(" ") }} {{ "a  b c".split(none, 1) }} {{ "".split() }} {{ "".split(",") }} {{ "abc".split("abc") }}
{{ csv.rsplit(",", 1) }} {{ csv.rsplit(",") }} {{ "a, b".split(sep=", ") }} {{ "a b c".split(maxsplit=1) }}
{{ "a".split("") }}
{{ lines.splitlines() }} {{ lines.splitlines(true) }} {{ "".splitlines() }} {{ "a\\x0bb\\x1cc\\u2028d".splitlines() }}
{{ s.startswith("He") }} {{ s.endswith(("x", "ld")) }} {{ s.startswith("") }} {{ s.startswith(()) }}
{{ s.startswith(1) }}
{{ s.replace("l", "L") }} {{ s.replace("l", "L", 1) }} {{ s.replace("", "-") }} {{ u.replace("", ".") }} {{ s.replace("zz", "y") }} {{ "aaa".replace("aa", "b") }}
{{ s.find("o") }} {{ s.rfind("o") }} {{ s.find("zz") }} {{ u.find("東") }} {{ s.find("o", 5) }} {{ s.index("W") }} {{ s.count("l") }} {{ s.count("") }} {{ "aaaa".count("aa") }} {{ s.find("", 99) }}
{{ s.index("zz") }}
{{ s.partition(" ") }} {{ s.rpartition("o") }} {{ s.partition("zz") }} {{ s.rpartition("zz") }}
{{ "Hello".removeprefix("He") }} {{ "Hello".removesuffix("lo") }} {{ "Hello".removeprefix("x") }} {{ "7".zfill(3) }} {{ "-7".zfill(4) }} {{ "abc".zfill(2) }}
{{ "12".isdigit() }} {{ "".isdigit() }} {{ "²".isdigit() }} {{ "aé".isalpha() }} {{ "a1".isalpha() }} {{ " \\t".isspace() }} {{ "AB".isupper() }} {{ "aB".islower() }} {{ "1".isupper() }}
{{ ", ".join(w) }} {{ "".join([]) }} {{ "-".join("abc") }}
{{ ", ".join([1]) }}
{{ "{}-{}".format(1, "b") }} {{ "{1}{0}".format("a", "b") }} {{ "{x}".format(x=3) }} {{ "{{}}".format() }} {{ "{}".format(none) }}
{{ "{}".format() }}
{{ "%s and %d" % ("a", 3) }} {{ "%s" % 5 }} {{ "%05.2f|%-5s|%5s|%x|%%" % (3.14159, "ab", "cd", 255) }} {{ "%(a)s" % {"a": 1} }} {{ "%r" % "x" }} {{ "%s|%s"|format("a", 1) }} {{ "%+d" % 3 }}
{{ "%d" % "x" }}
{{ "%s %s" % "x" }}
{{ s.foo() }}
{{ "".__class__ }}|
{{ "".__class__.__mro__ }}
{{ l.append(1) }}
{{ d.pop("a") }}
{{ d.update({}) }}
{{ l.append is defined }} {{ d.clear is defined }} {{ d.get is defined }}
{{ d.get("a") }} {{ d.get("zz") }} {{ d.get("zz", 5) }} {{ d.keys()|list }} {{ d.values()|list|length }} {{ d.copy() == d }}
{{ d.get() }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.items()|length }} {{ d|items|list|first }}
{{ l.count(1) }} {{ l.index(2) }} {{ (1, 1).count(1) }}
{{ l.index(99) }}
{{ s|upper }} {{ s|lower }} {{ "foo bar-baz (qux"|title }} {{ "hELLO"|capitalize }} {{ 5|upper }} {{ none_v|lower }} {{ u|title }} {{ sp|trim }}| {{ "xax"|trim("x") }} {{ s|replace("l", "L") }} {{ 1.5|string ~ 1 }} {{ 122|replace(2, 3) }}
{{ s|length }} {{ u|length }} {{ l|count }} {{ d|length }} {{ ""|length }} {{ (1, 2)|length }}
{{ 5|length }}
{{ none_v|length }}
{{ missing|default("d") }} {{ none_v|default("d") }} {{ none_v|default("d", true) }} {{ ""|d("x", boolean=true) }} {{ 0|default(5) }} {{ missing|default }}|
{{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ d|first }} {{ d|last }} {{ el|first }}| {{ el|last }}|
{{ 5|first }}
{{ l|sort }} {{ w|sort }} {{ w|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ messages|sort(attribute="role")|map(attribute="role")|list }} {{ d|sort }}
{{ mixed|sort }}
{{ l|reverse|list }} {{ s|reverse }} {{ u|reverse }} {{ d|reverse|list }}
{{ ["a", "A", "b", 1, 1.0, true]|unique|list }} {{ ["a", "A"]|unique(case_sensitive=true)|list }}
{{ l|join }} {{ l|join(", ") }} {{ messages|join("/", attribute="role") }} {{ el|join("x") }}| {{ "abc"|join("-") }} {{ [none, 1.0, true]|join(" ") }}
{{ d|dictsort }} {{ d|dictsort(true) }} {{ {"x": 2, "y": 1}|dictsort(by="value") }} {{ {"x": 2, "y": 1}|dictsort(reverse=true) }}
{{ 5|dictsort }}
{{ messages|map(attribute="role")|list }} {{ w|map("upper")|list }} {{ w|map("replace", "a", "z")|list }} {{ messages|map(attribute="extra.k.0", default="-")|list }} {{ ll|map("first")|list }} {{ ll|map(attribute=1)|list }}
{{ messages|selectattr("role", "equalto", "user")|list|length }} {{ messages|selectattr("content")|map(attribute="content")|list }} {{ messages|rejectattr("role", "eq", "user")|map(attribute="role")|list }} {{ l|select("odd")|list }} {{ l|reject("odd")|list }} {{ [0, 1, "", none]|select|list }} {{ l|select(">", 1)|list }} {{ w|select("in", ["a", "b"])|list }}
{{ messages|selectattr("role", "equalto", "user")|first }} {{ (messages|selectattr("role", "equalto", "zz")|first) is defined }} {% if messages|selectattr("role", "equalto", "zz") %}true{% else %}false{% endif %}
{{ messages|selectattr("role")|length }}
{{ messages|selectattr("role")|last }}
{% set g = l|map("string") %}{{ g|list }}{{ g|list }}
{{ l|map("zz")|list }}
{{ l|sum }} {{ [1.5, 2]|sum }} {{ messages|map(attribute="role")|list|length }} {{ l|min }} {{ l|max }} {{ w|min }} {{ w|max }} {{ el|max }}| {{ [[1], [2]]|sum(start=[]) }} {{ [{"v": 1}, {"v": 2}]|sum(attribute="v") }}
{{ "7"|int }} {{ "7.9"|int }} {{ "x"|int }} {{ "x"|int(5) }} {{ 7.9|int }} {{ -7.9|int }} {{ none_v|int }} {{ " 8 "|int }} {{ "1_0"|int }} {{ true|int }} {{ ""|int }} {{ "1e3"|int }}
{{ "2.5"|float }} {{ "x"|float }} {{ 3|float }} {{ "x"|float(1) }} {{ "1e3"|float }} {{ " -2 "|float }} {{ none_v|float }}
{{ missing|int }}
{{ -3|abs }} {{ neg|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, "ceil") }} {{ 2.9|round(method="floor") }} {{ 7|round }} {{ 1.005|round(2) }} {{ 0.5|round }}
{{ d|tojson }} {{ l|tojson }} {{ s|tojson }} {{ none_v|tojson }} {{ html|tojson }} {{ u|tojson }} {{ tiny|tojson }} {{ big|tojson }} {{ yes|tojson }} {{ (1, 2)|tojson }}
{{ d|tojson(indent=2) }} {{ el|tojson(indent=2) }} {{ ed|tojson(indent=4) }} {{ ll|tojson(indent="\\t") }} {{ l|tojson(indent=0) }}
{{ d|tojson(sort_keys=true) }} {{ u|tojson(ensure_ascii=true) }} {{ d|tojson(separators=(",", ":")) }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ "\\x00\\x1f\\x7f\\u2028"|tojson }} {{ l|tojson(separators=(",", ":"), indent=1) }}
{{ missing|tojson }}
{{ range|tojson }}
{{ {(1, 2): 3}|tojson }}
{{ "a\\nb\\n\\nc"|indent }} {{ "a\\nb"|indent(2, true) }} {{ "a\\n\\nb"|indent(2, blank=true) }} {{ "a\\nb"|indent("> ") }} {{ "a"|indent }} {{ ""|indent(2, true) }}|{{ "a\\nb\\n"|indent }}|
{{ "a b&c/d?é"|urlencode }} {{ "one two-three_four é1"|wordcount }} {{ "abc"|list }} {{ html|escape }} {{ html|e }} {{ 5|safe }}
{{ "<"|safe + "<" }} {{ "<" + "<"|safe }} {{ ("<"|safe ~ "<") + "<" }} {{ "a<"|safe|upper + ">" }} {{ ("<"|safe)[0] + "<" }} {{ ("<"|safe * 2) + "<" }} {{ "<"|safe|string + "<" }} {{ "<"|safe|trim + "<" }} {{ "<"|safe|replace("a", "b") + "<" }} {{ ["<"|safe] }}
{{ "<"|safe is escaped }} {{ "<" is escaped }} {{ "x"|attr("upper") is defined }} {{ d|attr("a") is defined }} {{ d|attr("keys") is defined }}
{{ s|nofilter }}
{{ s is notest }}
{% if no %}{{ s|nofilter }}{% endif %}ok
{{ s is defined }} {{ none_v is none }} {{ n is number }} {{ x is float }} {{ n is integer }} {{ yes is integer }} {{ yes is number }} {{ yes is boolean }} {{ s is string }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ l is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ missing is sequence }} {{ none_v is iterable }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ s is callable }} {{ s.upper is callable }} {{ range is callable }}
{{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ "ab" is lower }} {{ "AB" is upper }} {{ n is sameas n }} {{ n is eq 7 }} {{ n is ne 7 }} {{ n is gt 6 }} {{ n is ge 8 }} {{ n is lt 8 }} {{ n is le 6 }} {{ 1 is in [1, 2] }} {{ n is not none }} {{ n is not in [7] }} {{ "upper" is filter }} {{ "zz" is filter }} {{ none_v is sameas none }}
{{ n is defined and s is string or no }} {{ not n is none }} {{ n is none is none }}
{{ 5 is divisibleby 0 }}
{{ n is divisibleby }}
{{ dict(a=1, b=2) }} {{ dict({"x": 1}, y=2) }} {{ dict([("a", 1)]) }} {{ dict() }} {{ range(3)|list }} {{ range(1, 10, 3)|list }} {{ range(5, 0, -2)|list }} {{ range(0)|list }} {{ range(3) == range(3) }} {{ range(5)[-1] }} {{ range(5)[1:3]|list }} {{ 3 in range(5) }} {{ range(4)|length }}
{{ range(100001) }}
{{ range(1, 2, 0) }}
{{ range("a") }}
{{ raise_exception("no") }}
{{ raise_exception(5) }}
{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {{ loop.cycle("a", "b") }} {{ loop.changed(i > 1) }};{% endfor %}
{% for i in el %}x{% else %}none{% endfor %} {% for i in l if i > 1 %}{{ loop.index }}{{ i }}{% endfor %} {% for i in l if i > 9 %}x{% else %}e{% endfor %} {% for c in u %}{{ c }}.{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for a, b in ll %}{{ a }}{{ b }}{% endfor %} {% for i in missing %}x{% else %}m{% endfor %}
{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %} {% for a, in [[1]] %}{{ a }}{% endfor %}
{% for a, b in [[1]] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in none_v %}{% endfor %}
{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if i == 2 %}{% break %}{% endif %}{% endfor %} {% for i in range(9) %}{% for j in l %}{% if j == 1 %}{% break %}{% endif %}{{ j }}{% endfor %}{% if i > 1 %}{% break %}{% endif %}{% endfor %}
{% break %}
{% for i in l recursive %}{{ i }}{% if i == 3 %}({{ loop([8, 9]) }}){% endif %}{% endfor %} {% for m in [{"n": 1, "k": [{"n": 2, "k": [{"n": 3}]}]}] recursive %}{{ loop.depth }}{{ m.n }}{% if m.k %}[{{ loop(m.k) }}]{% endif %}{% endfor %}
{% for i in l %}{{ loop([1]) }}{% endfor %}
{% set a = 1 %}{% for i in l %}{{ a }}{% set a = i %}{{ a }}{% endfor %}{{ a }} {% if yes %}{% set a = 9 %}{% endif %}{{ a }}
{% set ns = namespace(a=1, b=[]) %}{% for i in l %}{% set ns.a = ns.a + i %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.zz is defined }} {{ ns["a"] }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t = 1, 2 %}{{ t }} {% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }} {% set z = [] %}{{ z }}
{% set x.y = 1 %}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set 1 = 2 %}
{% set none = 2 %}
{% set b %}text {{ n }}{% endset %}[{{ b }}] {% set b | upper | replace("T", "-") %}text{% endset %}[{{ b }}] {% set q %}{% set inner = 1 %}{% endset %}{{ inner is defined }}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(b=1) }} {{ m(a=5) }} {{ m("x")|upper }} {{ m.name }} {{ m is callable }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, zz=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(5) }} {% set g = 1 %}{% macro h() %}{{ g }}{% endmacro %}{% set g = 2 %}{{ h() }}
{% macro outer() %}{{ caller() }}-{{ caller() }}{% endmacro %}{% call outer() %}in {{ n }}{% endcall %} {% macro each(v) %}{% for i in v %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(l) %}<{{ i }}>{% endcall %}
{% macro nocall() %}{% endmacro %}{% call nocall() %}{% endcall %}
{% filter upper %}abc {{ n }}{% endfilter %} {% filter replace("a", "b")|title %}a cat{% endfilter %} {% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set q = 1 %}{% endwith %}{{ q is defined }} {% print 1, 2 %}
{% generation %}gen {{ n }}{% set inside = 1 %}{% endgeneration %} {{ inside is defined }}
{% if no %}a{% elif n == 7 %}b{% elif yes %}c{% else %}d{% endif %} {% if missing %}x{% endif %} {% if l and d and s %}t{% endif %} {% if e or el or ed or zero %}t{% else %}f{% endif %}
{% raw %}{{ x }} {% if %}{% endraw %} {% raw -%}  a  {%- endraw %}| {%- raw %} b {% endraw -%} |{# comment {{ x }} #}.{#- c -#} .
a {%- if yes -%} b {%- endif -%} c {{- n -}} d {{ n -}}  e  {{- n }}
{{ "a" }}{# unterminated
{{ n
{% if yes %}
{% endif %}
{% else %}
{% if %}a{% endif %}
{% for i %}{% endfor %}
{% for i in %}{% endfor %}
{% unknown %}
{% raw %}
{{ }}
{{ (1 }}
{{ [1) }}
{{ 1 1 }}
{{ a b }}
{{ 'x }}
{{ $ }}
{{ 1 + }}
{{ * }}
{{ a. }}
{{ a|  }}
{{ a is }}
{{ f(a=1, 2) }}
{{ {"a"} }}
{{ l[1 }}
{% macro %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% set %}
{% include "x" %}
{{ u }} {{ u|length }} {{ u|upper|lower }} {{ u == "ÀÉß ΑΣ ǆ 東京🙂" }} {{ "\\u00e9" == "é" }} {{ u|tojson|length }}
{{ ["\\x00", "\\x7f", "\\u00a0", "\\u200b", "\\ue000", "é", "🙂", "a'b", 'a"b', "a'\\"b", "\\\\", "\\r\\t"] }}
{{ messages[1:]|length }} {{ messages[-1].content }} {{ messages[0]["role"] }} {{ messages[3].extra.k[1].z }} {{ messages[::-1]|map(attribute="role")|join(",") }}
{{ messages[2].content is none }} {{ messages[2].content|default("x") }} {{ messages[2]["content"]|default("x", true) }}
{{ (messages|last).content }} {{ (messages|first)["content"] }} {{ messages|length - 1 }} {{ messages|length is gt 3 }}
{{ n|string + "x" }} {{ n ~ "x" }} {{ [1, 2] + [3] }} {{ (1,) + (2,) }} {{ l|list + w }}
{{ {"a": 1} + {"b": 2} }}
{{ [1] + (2,) }}
{{ 99999999999 * 99999 }} {{ 2 ** 62 }}
{{ loop }}|{{ super }}|
{{ (n) }} {{ ((n)) }} {{ (n,) }} {{ ("a", "b")[1] }} {{ {"a": 1}["a"] }} {{ [1, [2, 3]][1][0] }} {{ "abc"[1] }} {{ "abc".upper()[0] }} {{ s.split()[0].lower() }} {{ -n }} {{ +n }} {{ - -n }} {{ not -n }}
{{ n if n > 5 and s or e else "z" }} {{ (n > 5) ~ "" }} {{ 1 ~ 2 + 3 }} {{ 1 + 2 ~ 3 }} {{ 2 * 3 ~ 4 }} {{ "a" ~ "b" == "ab" }} {{ n|string|length + 1 }} {{ -2|abs }} {{ 3 - -2 }} {{ "a" is string and not no }}
{{ "a".upper().lower().upper() }} {{ "  a "|trim|upper|list }} {{ [3, 1]|sort|first + 1 }} {{ l|join(",")|length }} {{ (l|sort)[0] }} {{ l|sort|join("") ~ "!" }}
""".strip("\n")


def rows():
    """Each line of the table; each expression of it by itself too, so that one which fails hides no other."""
    for line in TABLE.split("\n"):
        yield line
        parts = re.findall(r"{{.*?}}(?!})", line)
        if len(parts) > 1 and "{%" not in line and "raw" not in line:
            yield from parts
    yield "a\r\nb\rc"
    yield "{{ n }}\n"
    yield "{{ n }}\n\n"
    yield "\n{{ n }}"
    yield "  {% if yes %}\n  x\n  {% endif %}\ny\n  {%+ if yes %}\n  x\n  {%+ endif +%}\ny\n  {# c #}\nz {# d #}\n  {{ n }}\n\t{% set a = 1 %}\t\nend"
    yield "{% if yes %}\n\n a{% endif %}\n\n\n"
    yield "{{ 'a\\\nb' }}"
    yield "{% for i in l %}\n    {%- if i > 1 %}\n        {{- i }}\n    {%- endif %}\n{%- endfor %}\n{{ '' }}\n"
    yield "x\n\n   {%- raw %}\n {{ }} {% endraw %}\n   {% raw %}\n q {%- endraw %}  z"


def result(template):
    try:
        return _compile_jinja_template(template).render(**json.loads(json.dumps(VARIABLES)))
    except Exception:
        return None


path = pathlib.Path(__file__).parents[1] / "golden" / "chat" / "jinja.json"
path.parent.mkdir(parents=True, exist_ok=True)
cases = [[template, result(template)] for template in rows()]
path.write_text("{\"variables\": %s,\n\"cases\": [\n%s\n]}\n" % (json.dumps(VARIABLES, ensure_ascii=False), ",\n".join(json.dumps(case) for case in cases)))
print("%s: %d cases, %d of which fail" % (path, len(cases), sum(case[1] is None for case in cases)))
