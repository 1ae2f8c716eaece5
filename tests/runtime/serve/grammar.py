#!/usr/bin/env python3
"""grammar.py - random schemas and documents: what the mask lets through is valid, what is valid is let through.

  grammar.py GRAMMAR_TOOL TOKENIZER SCHEMAS SEED

For each random schema: texts sampled from the mask are JSON, and valid by jsonschema; documents made from the schema by
this file (checked by jsonschema too), written compact, with blanks and indented, are accepted token by token; documents
that were damaged are accepted only if they are still valid. Without python3-jsonschema it answers 77 (skipped), or 1
with TEST_PACKAGES=all in the environment.
"""
import json
import os
import random
import re
import string
import subprocess
import sys

try:
    import jsonschema
except ImportError:
    print("python3-jsonschema is not installed: skipped")
    sys.exit(1 if os.environ.get("TEST_PACKAGES") == "all" else 77)

KEYS = ["a", "b", "name", "Name", "x y", "é", 'q"uote', "back\\slash", "tab\t", "日本", "", "/~", "id", "type"]
PATTERNS = [
    (r"^[a-z]{2,5}$", lambda r: "".join(r.choices(string.ascii_lowercase, k=r.randint(2, 5)))),
    (r"^(foo|bar)+$", lambda r: "".join(r.choices(["foo", "bar"], k=r.randint(1, 4)))),
    (r"\d", lambda r: r.choice(["é", "", "x"]) + r.choice("0123456789") + r.choice(["", 'a"b', "\n"])),
    (r"^[^0-9]*$", lambda r: "".join(r.choices("abé\"\\\n 日🙂", k=r.randint(0, 6)))),
    (r"^\+?[0-9]{3}-(?:[A-F]|x{2})?$", lambda r: r.choice(["", "+"]) + "123-" + r.choice(["", "A", "F", "xx"])),
    (r"^.{0,4}$", lambda r: "".join(r.choices("ab é🙂", k=r.randint(0, 4)))),
    (r"end$", lambda r: r.choice(["", "the ", "\"", "endend"]) + "end"),
]
FORMATS = {
    "date": ["2024-02-29", "1999-12-31", "0001-01-01"],
    "time": ["23:59:59Z", "00:00:00.25+02:00"],
    "date-time": ["2024-02-29T12:00:00Z", "2023-01-31T00:00:00.123456-11:30"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"],
    "email": ["a.b@c.example", "x+1@sub.example.org"],
    "ipv4": ["0.0.0.0", "255.249.199.99"],
    "ipv6": ["2001:db8:0:0:0:0:0:1"],
    "hostname": ["a", "example.org"],
    "duration": ["P1Y2M3D", "PT1H", "P4W"],
    "uri": ["https://example.org/a?b=c#d", "mailto:x"],
}


class Gen:
    """A random schema with a function that makes documents of it."""

    def __init__(self, rng):
        self.rng = rng
        self.defs = {}
        self.makers = {}

    def scalar(self):
        r = self.rng
        kind = r.randrange(9)
        if kind == 0:
            return {"type": "null"}, lambda d: None
        if kind == 1:
            return {"type": "boolean"}, lambda d: r.random() < 0.5
        if kind == 2:
            return self.integer()
        if kind == 3:
            return self.number()
        if kind == 4:
            lo, hi = sorted([r.randrange(8), r.randrange(12)])
            schema = {"type": "string"}
            if r.random() < 0.7:
                schema["minLength"] = lo
            if r.random() < 0.7:
                schema["maxLength"] = hi
            lo, hi = schema.get("minLength", 0), schema.get("maxLength", 20)
            hi = max(lo, hi)
            return schema, lambda d: "".join(r.choices("ab \"\\/é日🙂\n\x01", k=r.randint(lo, hi)))
        if kind == 5:
            pattern, make = r.choice(PATTERNS)
            return {"type": "string", "pattern": pattern}, lambda d: make(r)
        if kind == 6:
            name = r.choice(list(FORMATS))
            return {"type": "string", "format": name}, lambda d: r.choice(FORMATS[name])
        if kind == 7:
            values = r.sample(["a", "ab", "abc", "é", 1, 2.5, -3, None, True, "", {"k": [1, "x"]}, [], [[]], 1e300], r.randint(1, 5))
            return {"enum": values}, lambda d: r.choice(values)
        value = r.choice(["const", 7, {"a": {"b": None}}, [1, 2, {}], "q\"\n"])
        return {"const": value}, lambda d: value

    def integer(self):
        r = self.rng
        schema = {"type": "integer"}
        lo = r.choice([None, -5, 0, 7, -(10**6), 10**12 + 3, -(2**62)])
        span = r.choice([0, 1, 9, 10, 105, 99999, 10**15])
        hi = None if lo is None or r.random() < 0.3 else lo + span
        low, high = -(10**17), 10**17
        if lo is not None:
            schema["exclusiveMinimum" if r.random() < 0.3 and hi is None else "minimum"] = lo
            low = lo + (1 if "exclusiveMinimum" in schema else 0)
        if hi is not None:
            schema["maximum"] = hi
            high = hi
        high = max(high, low)
        return schema, lambda d: r.choice([low, high if hi is not None else low, r.randint(low, high)])

    def number(self):
        r = self.rng
        schema = {"type": "number"}
        lo = r.choice([None, 0, -1.5, 0.1, 99.5, 0.001])
        hi = r.choice([None, 100, 100.25, 1000000])
        if lo is not None:
            schema[r.choice(["minimum", "exclusiveMinimum"])] = lo
        if hi is not None:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = hi
        low = lo if lo is not None else -1000.0
        high = hi if hi is not None else max(low + 50, 1000.0)
        return schema, lambda d: round(r.uniform(low + 0.01, high - 0.01), 4)

    def array(self, depth):
        r = self.rng
        items, make = self.schema(depth - 1)
        schema = {"type": "array", "items": items}
        prefix = []
        if r.random() < 0.3:
            prefix = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
            schema["prefixItems"] = [p[0] for p in prefix]
        lo, hi = 0, 4
        if r.random() < 0.5:
            lo = r.randint(0, 3)
            schema["minItems"] = lo
        if r.random() < 0.5:
            hi = lo + r.randint(0, 4)
            schema["maxItems"] = hi
        hi = max(hi, lo)

        def make_all(d):
            count = r.randint(lo, hi if d > 0 else lo)
            return [prefix[i][1](d - 1) if i < len(prefix) else make(d - 1) for i in range(count)]

        return schema, make_all

    def object(self, depth):
        r = self.rng
        keys = r.sample(KEYS, r.randint(0, 5))
        props = {k: self.schema(depth - 1) for k in keys}
        required = [k for k in keys if r.random() < 0.5]
        schema = {"type": "object", "properties": {k: v[0] for k, v in props.items()}, "required": required}
        extra = None
        mode = r.randrange(4)
        if mode == 0:
            schema["additionalProperties"] = False
        elif mode == 1:
            extra = self.schema(depth - 1)
            schema["additionalProperties"] = extra[0]
        elif mode == 2:
            schema["additionalProperties"] = True
            extra = (True, lambda d: r.choice([1, "x", [None], {"deep": {"er": []}}]))

        def make_all(d):
            out = {k: props[k][1](d - 1) for k in keys if k in required or (d > 0 and r.random() < 0.6)}
            if extra is not None and d > 0:
                for _ in range(r.randint(0, 2)):
                    name = r.choice(["zz", "namex", "nam", "ab", "éé", "\\", "new\nline", "a\""])
                    if name not in keys:
                        out[name] = extra[1](d - 1)
            return out

        return schema, make_all

    def schema(self, depth):
        r = self.rng
        kind = r.randrange(10)
        if depth <= 0 or kind < 3:
            return self.scalar()
        if kind < 5:
            return self.array(depth)
        if kind < 8:
            return self.object(depth)
        if kind == 8:
            parts = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
            return {r.choice(["anyOf"]): [p[0] for p in parts]}, lambda d: r.choice(parts)[1](d - 1)
        name = "d%d" % r.randrange(3)
        if name not in self.defs:
            self.defs[name] = True  # references to it while it is made are recursion
            inner, make = self.schema(depth - 1)
            self.defs[name] = {"anyOf": [{"type": "null"}, inner]}
            self.makers[name] = lambda d: None if d <= 0 else make(d - 1)
        return {"$ref": "#/$defs/" + name}, lambda d: self.makers[name](d - 1)

    def whole(self):
        schema, make = self.schema(self.rng.randint(0, 4))
        if self.defs:
            schema = dict(schema)
            schema["$defs"] = self.defs
        return schema, make


def is_valid(validator, document):
    return validator.is_valid(document)


def texts_of(document):
    yield json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    yield json.dumps(document, ensure_ascii=False)
    yield json.dumps(document, ensure_ascii=False, indent=2)


def damage(rng, text):
    at = rng.randrange(len(text))
    how = rng.randrange(3)
    if how == 0:
        return text[:at] + text[at + 1:]
    if how == 1:
        return text[:at] + rng.choice('{}[],:"0a-.\\ \n') + text[at:]
    return text[:at]


def main():
    tool, tokenizer, count, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    process = subprocess.Popen([tool, tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    checker = jsonschema.FormatChecker(["date", "ipv4", "ipv6", "uuid"])
    totals = {"schemas": 0, "sampled": 0, "accepted": 0, "damaged": 0, "damaged and let through": 0, "unsatisfiable": 0}

    def ask(request):
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            sys.exit(f"the tool ended: {json.dumps(request)[:2000]}")
        return json.loads(line)

    for i in range(count):
        rng = random.Random(seed * 1000003 + i)
        gen = Gen(rng)
        try:
            schema, make = gen.whole()
        except RecursionError:
            continue
        where = f"schema {i} of seed {seed}: {json.dumps(schema, ensure_ascii=False)}"
        validator = jsonschema.Draft202012Validator(schema, format_checker=checker)
        totals["schemas"] += 1
        answer = ask({"schema": schema, "sample": 4, "seed": i, "tokens": 400})
        if "error" in answer:
            if "no document is valid" in answer["error"]:
                totals["unsatisfiable"] += 1
                continue
            sys.exit(f"{where}\nrefused: {answer['error']}")
        for text, ended in zip(answer["texts"], answer["ended"]):
            if not ended:
                continue
            totals["sampled"] += 1
            try:
                document = json.loads(text, strict=True)
            except ValueError as error:
                sys.exit(f"{where}\nsampled no JSON: {text!r}: {error}")
            if not is_valid(validator, document):
                error = next(validator.iter_errors(document))
                sys.exit(f"{where}\nsampled what is not valid: {text!r}: {error.message}")
        good = []
        for _ in range(4):
            document = make(6)
            if not is_valid(validator, document):
                continue  # bounds that cross, or a pattern's maker that is wrong: not the grammar's fault
            good += list(texts_of(document))
        answer = ask({"schema": schema, "texts": good, "seed": i})
        for text, at in zip(good, answer["accepted"]):
            totals["accepted"] += 1
            if at != -1:
                sys.exit(f"{where}\na valid document is refused at byte {at}: {text}")
        bad = [damage(rng, text) for text in good if len(text) > 0]
        answer = ask({"schema": schema, "texts": bad, "seed": i})
        for text, at in zip(bad, answer["accepted"]):
            totals["damaged"] += 1
            if at == -1:
                totals["damaged and let through"] += 1
                try:
                    document = json.loads(text)
                except ValueError as error:
                    sys.exit(f"{where}\na damaged text is accepted: {text!r}: {error}")
                if not is_valid(validator, document):
                    sys.exit(f"{where}\nwhat is not valid is accepted: {text!r}")
    process.stdin.close()
    if process.wait() != 0:
        sys.exit(f"the tool ended with {process.returncode}")
    print(", ".join(f"{value} {name}" for name, value in totals.items()))
    if totals["sampled"] < count or totals["accepted"] < count or totals["damaged and let through"] == totals["damaged"]:
        sys.exit("too little was tested")


main()
