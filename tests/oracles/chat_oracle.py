"""chat_oracle.py - chat templates against transformers' apply_chat_template, text for text.

    python chat_oracle.py TERN_BINARY WORK_FOLDER

1. Every template of the llama-cpp-python source package (some seventy, of real models) over a table of conversations,
   with and without generation prompt: the same text, or a failure of both. Those that we refuse as unsupported are
   listed; none of them may be of a family that Tern runs. CHAT_TEMPLATES names a folder of *.jinja to take instead.
2. Random expressions, 3,000 of them, seeded: the same text or a failure of both.
3. What "tern data prepare --format chat" marks as the assistant's, where a template has {% generation %}, against
   transformers' assistant masks, token for token.
4. Every character of Unicode through the methods that know characters: case, repr, isalpha, ...
"""
import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import unicodedata
import warnings

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template

from llama_source import llama_source

warnings.simplefilter("ignore", SyntaxWarning)  # of what random expressions look like in Python
tern, work = sys.argv[1], pathlib.Path(sys.argv[2])
work.mkdir(parents=True, exist_ok=True)

SEED = 20260101
EXPRESSIONS = 3000
OURS = ["llama", "Llama", "Qwen", "gemma", "Mistral", "mistral", "Ministral", "Phi", "SmolLM", "Hermes"]

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a place: \"now\" & <later>, ±1 °C.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A town, e.g. 東京"},
                "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
                "exact": {"type": "boolean"},
                "limits": {"type": "array", "items": {"type": "number"}, "minItems": 0},
            },
            "required": ["place"],
        },
    },
}
CALL = {"id": "call12345", "type": "function",
        "function": {"name": "get_weather", "arguments": {"place": "Zürich", "days": 2, "exact": True, "limits": [1.5, 1e-7]}}}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


CHATS = {
    "one": {"messages": [user("Hi")]},
    "system": {"messages": [system("Be brief."), user("Hi")]},
    "turns": {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]},
    "system turns": {"messages": [system("S"), user("a"), assistant("b"), user("c")]},
    "ends with assistant": {"messages": [user("a"), assistant("b")]},
    "system only": {"messages": [system("S")]},
    "two users": {"messages": [user("a"), user("b")]},
    "assistant first": {"messages": [assistant("b"), user("a")]},
    "late system": {"messages": [user("a"), assistant("b"), system("S"), user("c")]},
    "unicode": {"messages": [system("Σ ß ı ǆ"), user("naïve 東京 🙂\u200d🙂 \u0301"), assistant("Ａ\u2028b\u00a0"), user("\ufeffend")]},
    "white space": {"messages": [system("  S \n"), user("\n\n a \t\n"), assistant(" b\n\n"), user("c\r\n")]},
    "empty": {"messages": [user(""), assistant(""), user("x")]},
    "special text": {"messages": [user("<|im_end|> </s> {{ x }} {% if %} <think>a</think> 'q' \"d\" \\ & <b>"), assistant("[INST] <|eot_id|>"), user("ok")]},
    "thinking": {"messages": [user("a"), assistant("<think>\nwhy\n</think>\n\nb"), user("c"), assistant("<think>x</think>d")]},
    "reasoning": {"messages": [user("a"), assistant("b", reasoning_content="because"), user("c")]},
    "list content": {"messages": [user([{"type": "text", "text": "part one"}, {"type": "text", "text": " part two"}])]},
    "mixed content": {"messages": [system([{"type": "text", "text": "S"}]), user("a"), assistant([{"type": "text", "text": "b"}]), user("c")]},
    "other role": {"messages": [user("a"), {"role": "critic", "content": "b"}, user("c")]},
    "null content": {"messages": [user("a"), {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
    "no content": {"messages": [{"role": "user"}]},
    "number content": {"messages": [user(7), assistant(1.5)]},
    "none": {"messages": []},
    "tools": {"messages": [user("Weather?")], "tools": [TOOL]},
    "tools system": {"messages": [system("S"), user("Weather?")], "tools": [TOOL, {**TOOL, "function": {**TOOL["function"], "name": "other"}}]},
    "tool call": {"messages": [user("Weather?"), {"role": "assistant", "content": "", "tool_calls": [CALL]}], "tools": [TOOL]},
    "tool result": {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [CALL]},
                                 {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"celsius\": 21.5}"},
                                 assistant("21.5 °C"), user("Thanks")], "tools": [TOOL]},
    "tool result object": {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [CALL]},
                                        {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": {"celsius": 21.5, "ok": None}}],
                           "tools": [TOOL]},
    "two calls": {"messages": [user("Weather?"), {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, {**CALL, "id": "call54321"}]},
                               {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "1"},
                               {"role": "tool", "name": "get_weather", "tool_call_id": "call54321", "content": "2"}], "tools": [TOOL]},
    "string arguments": {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [
        {**CALL, "function": {"name": "get_weather", "arguments": "{\"place\": \"Bern\"}"}}]}], "tools": [TOOL]},
    "calls without tools": {"messages": [user("Weather?"), {"role": "assistant", "tool_calls": [CALL]},
                                         {"role": "tool", "tool_call_id": "call12345", "content": "x"}]},
    "no tools": {"messages": [user("Hi")], "tools": []},
}
VARIABLES = [{}, {"enable_thinking": False}, {"enable_thinking": True}, {"xml_tools": True, "thinking": True},
             {"reasoning_effort": "low", "model_identity": "M"}]


def folder_of_templates():
    given = os.environ.get("CHAT_TEMPLATES")
    if given:
        return pathlib.Path(given)
    return llama_source() / "models" / "templates"


def expected(tokenizer, chat, prompt, variables):
    try:
        text = tokenizer.apply_chat_template(chat["messages"], tools=chat.get("tools"), tokenize=False,
                                             add_generation_prompt=prompt, **variables)
        return True, text
    except Exception as error:  # whatever jinja, Python or transformers raise
        return False, "%s: %s" % (type(error).__name__, str(error)[:200])


def found(folder, chat_file, prompt, variables, template=None):
    command = [tern, "tokenizer", "template", "--tokenizer", folder, "--messages", chat_file]
    command += ["--generation-prompt"] if prompt else []
    command += ["--template", template] if template else []
    command += ["--set=%s=%s" % (name, json.dumps(value)) for name, value in variables.items()]
    done = subprocess.run([str(word) for word in command], capture_output=True)
    if done.returncode == 0:
        return True, done.stdout.decode()
    if done.returncode != 2:
        sys.exit("chat_oracle: status %d of %s: %s" % (done.returncode, command, done.stderr.decode()[-400:]))
    return False, done.stderr.decode()


def check(name, source):
    """Differences of one template, and how many texts were equal, failed alike, were refused as unsupported."""
    folder = work / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chat_template.jinja").write_bytes(source)
    specials = {"bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(specials))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **specials)
    tokenizer.chat_template = source.decode()
    differences, equal, alike, refused = [], 0, 0, set()
    for chat_name, chat in CHATS.items():
        for variables in (v for v in VARIABLES if all(word in tokenizer.chat_template for word in v)):
            for prompt in (False, True):
                want = expected(tokenizer, chat, prompt, variables)
                got = found(folder, work / "chats" / (chat_name + ".json"), prompt, variables)
                if not chat["messages"] and not want[0]:
                    continue  # transformers' own rule: no conversation without messages
                if got[0] and want[0] and got[1] == want[1]:
                    equal += 1
                elif not got[0] and not want[0]:
                    alike += 1
                elif not got[0] and "not supported" in got[1]:
                    refused.add(got[1].split(": ", 2)[-1].strip())
                else:
                    differences.append("%s / %s / prompt %s / %s\n  want %r\n  got  %r" % (name, chat_name, prompt, variables, want, got))
    return name, differences, equal, alike, refused


# ---- random expressions ----

ATOMS = ["n", "x", "s", "u", "l", "d", "e", "none", "true", "false", "missing", "0", "1", "-2", "2.5", "'ab'", "' A b '", "''", "[]", "{}",
         "[1, 2, 3]", "['b', 'a']", "(1, 'x')", "{'k': 1, 'j': [2]}", "range(4)", "d.k", "d['j']", "l[0]", "s[1]", "messages[0]", "messages"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
FILTERS = ["length", "upper", "lower", "title", "trim", "list", "first", "last", "sort", "reverse|list", "join('-')", "tojson", "string", "int", "float",
           "default('z')", "default('z', true)", "unique|list", "map('string')|list", "select|list", "sum", "min", "max", "abs", "capitalize",
           "replace('a', 'é')", "items|list", "dictsort", "indent(2)", "round", "wordcount", "map(attribute='role')|list", "batch"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "odd",
         "divisibleby 2", "in [1, 'a']", "eq 1", "lower", "callable", "sameas none"]
METHODS = ["upper()", "split()", "split('b')", "strip()", "lstrip('a')", "startswith('a')", "find('b')", "replace('b', 'xx')", "title()", "items()|list",
           "keys()|list", "get('k')", "get('q', 5)", "count('a')", "splitlines()", "partition('b')", "zfill(4)", "isdigit()", "index(1)"]


def expression(rng, depth):
    kind = rng.randrange(10) if depth > 0 else 0
    inner = (lambda: expression(rng, depth - 1))
    if kind <= 1:
        return rng.choice(ATOMS)
    if kind == 2:
        return "(%s) %s (%s)" % (inner(), rng.choice(BINARY), inner())
    if kind == 3:
        return "%s %s %s" % (inner(), rng.choice(BINARY), inner())
    if kind == 4:
        return "(%s)|%s" % (inner(), rng.choice(FILTERS))
    if kind == 5:
        return "(%s) is %s%s" % (inner(), rng.choice(["", "not "]), rng.choice(TESTS))
    if kind == 6:
        return "(%s).%s" % (inner(), rng.choice(METHODS))
    if kind == 7:
        return "%s if %s else %s" % (inner(), inner(), inner())
    if kind == 8:
        return "(%s)[%s]" % (inner(), rng.choice(["0", "-1", "1:", ":2", "::-1", "'k'", "::2", "-2:", "5", "none"]))
    return rng.choice(["not (%s)", "-(%s)", "[%s]", "{'q': %s}", "(%s,)"]) % inner()


def vague(text):
    """What says where in memory an object is, or what kind of object it is: nobody's to equal."""
    return any(word in text for word in (" object at 0x", "<built-in", "dict_items(", "dict_keys(", "dict_values(", "range(", "<function", "<class"))


def random_expressions():
    rng = random.Random(SEED)
    values = {"n": 7, "x": 2.5, "s": "Ab cb", "u": "É東🙂 a", "l": [3, 1, 2], "d": {"k": 1, "j": [1, 2]}, "e": ""}
    folder = work / "expressions"
    folder.mkdir(exist_ok=True)
    messages = [user("a"), assistant("b")]
    (folder / "chat.json").write_text(json.dumps(messages))
    different, checked = [], 0
    templates = ["{{ %s }}" % expression(rng, 3) for _ in range(EXPRESSIONS)]

    def run(item):
        index, source = item
        try:
            want = _compile_jinja_template(source).render(messages=messages, tools=None, documents=None, add_generation_prompt=False, **values)
        except Exception:
            want = None
        if want is not None and vague(want):
            return None
        file = folder / ("%d.jinja" % index)
        file.write_text(source)
        got = found(folder, folder / "chat.json", False, values, file)
        file.unlink()
        if not got[0] and ("not supported" in got[1] or "found a slice of" in got[1]):
            return None  # jinja forgives a slice of what has none where it can work it out before the template runs
        if (want is None) != (not got[0]) or (want is not None and got[1] != want):
            return source, want, got
        return True

    (folder / "tokenizer_config.json").write_text("{}")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for answer in pool.map(run, enumerate(templates)):
            checked += answer is True
            if isinstance(answer, tuple):
                different.append("%s\n  want %r\n  got  %r" % answer)
    return different, checked


# ---- assistant masks ----

MARKED = """{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}"""


def assistant_masks():
    folder = work / "masks"
    folder.mkdir(exist_ok=True)
    chats = [chat["messages"] for chat in CHATS.values()
             if chat["messages"] and all(isinstance(m.get("content"), str) and m["role"] != "tool" for m in chat["messages"])
             and any(m["role"] == "assistant" for m in chat["messages"])]
    with open(folder / "chat.jsonl", "w") as file:
        for messages in chats:
            file.write(json.dumps({"messages": messages}) + "\n")
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    command = [tern, "tokenizer", "train", "--vocab-size", "400", "--out", str(folder / "tokenizer.json"), str(folder / "chat.jsonl")]
    for special in specials:
        command += ["--special", special]
    subprocess.run(command, check=True, capture_output=True)
    (folder / "chat_template.jinja").write_text(MARKED)
    subprocess.run([tern, "data", "prepare", "--format", "chat", "--tokenizer", str(folder / "tokenizer.json"), "--out", str(folder / "out"),
                    str(folder / "chat.jsonl")], check=True, capture_output=True)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    tokenizer.chat_template = MARKED
    ids = struct.unpack("<%dH" % ((folder / "out.bin").stat().st_size // 2), (folder / "out.bin").read_bytes())
    marks = (folder / "out.loss").read_bytes()[16:]
    at = 0
    for messages in chats:
        want = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        size = len(want["input_ids"])
        if list(ids[at : at + size]) != list(want["input_ids"]) or list(marks[at : at + size]) != list(want["assistant_masks"]):
            return ["masks of %r\n  want %r\n  got  %r" % (messages, list(zip(want["input_ids"], want["assistant_masks"])),
                                                           list(zip(ids[at : at + size], marks[at : at + size])))], 0
        at += size
    return ([] if at == len(ids) else ["found %d tokens; expected %d" % (len(ids), at)]), len(chats)


# ---- characters ----

METHODS_OF_TEXT = "{{ t.upper() }}\x01{{ t.lower() }}\x01{{ t.title() }}\x01{{ [t] }}\x01{% for c in t %}" + "".join(
    "{{ 1 if c.%s() else 0 }}" % name for name in ("isalpha", "isdigit", "isspace", "islower", "isupper")) + "{% endfor %}"


def characters():
    if unicodedata.unidata_version != "14.0.0":
        print("chat_oracle: this Python has Unicode %s, our tables 14.0.0: characters are not compared" % unicodedata.unidata_version)
        return []
    folder = work / "characters"
    folder.mkdir(exist_ok=True)
    (folder / "t.jinja").write_text("{% set t = messages[0].content %}" + METHODS_OF_TEXT)
    (folder / "tokenizer_config.json").write_text("{}")
    every = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    for first in range(0, len(every), 20000):
        text = "".join(every[first : first + 20000])
        (folder / "chat.json").write_text(json.dumps([user(text)]))
        got = found(folder, folder / "chat.json", False, {}, folder / "t.jinja")
        want = [text.upper(), text.lower(), text.title(), repr([text]),
                "".join("%d%d%d%d%d" % (c.isalpha(), c.isdigit(), c.isspace(), c.islower(), c.isupper()) for c in text)]
        if got != (True, "\x01".join(want)):
            return ["characters from U+%04X on are not what Python makes of them: %s" % (ord(text[0]), got[1][-200:] if not got[0] else "")]
    return []


(work / "chats").mkdir(exist_ok=True)
for chat_name, chat in CHATS.items():
    (work / "chats" / (chat_name + ".json")).write_text(json.dumps(chat))
templates = {path.stem: path.read_bytes() for path in sorted(folder_of_templates().glob("*.jinja"))}
if len(templates) < 50:
    sys.exit("chat_oracle: found %d templates; expected at least 50" % len(templates))
day = datetime.date.today()
failed, equal, alike, refusals = [], 0, 0, {}
with concurrent.futures.ThreadPoolExecutor(2) as pool:
    for name, differences, same, both, refused in pool.map(lambda item: check(*item), templates.items()):
        equal += same
        alike += both
        failed += differences
        if refused:
            refusals[name] = refused
if day != datetime.date.today():
    sys.exit("chat_oracle: the day changed meanwhile, and templates write it: run it again")
for name, sentences in refusals.items():
    print("refused: %s: %s" % (name, "; ".join(sorted(sentences))))
    if any(word in name for word in OURS):
        failed.append("%s is of a family of ours, and refused: %s" % (name, sentences))
more, checked = random_expressions()
masks, masked = assistant_masks()
failed += more + masks + characters()
print("chat_oracle: %d random expressions alike, %d conversations with the same assistant masks" % (checked, masked))
for difference in failed[:40]:
    print(difference)
print("chat_oracle: %d templates, %d texts equal, %d failures of both, %d templates refused, %d differences"
      % (len(templates), equal, alike, len(refusals), len(failed)))
sys.exit(1 if failed else 0)
