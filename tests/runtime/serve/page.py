"""page.py - the chat page in a real browser, headless, by the WebDriver protocol: page.py TERN MODEL CHAT_TEMPLATE.

Needs Debian's chromium and chromium-driver and nothing else; without them it exits with 77. What takes time is waited for by
what the page shows."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

TERN, MODEL, TEMPLATE = sys.argv[1:4]
PATIENCE = 120
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def check(condition, *words):
    if not condition:
        raise AssertionError(" ".join(str(w) for w in words))


def until(test, *words):
    end = time.monotonic() + PATIENCE
    while True:
        found = test()
        if found:
            return found
        check(time.monotonic() < end, "hung:", *words)
        time.sleep(0.02)


class Browser:
    def __init__(self, folder):
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        for line in self.driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                break
        else:
            raise AssertionError("chromedriver did not start")
        self.base = f"http://127.0.0.1:{found.group(1)}"
        answer = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": {
                "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--user-data-dir=" + folder, "--window-size=900,700"]}}}})
        self.base += "/session/" + answer["sessionId"]

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return json.loads(response.read())["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error

    def find(self, selector):
        return [e[ELEMENT] for e in self.call("POST", "/elements", {"using": "css selector", "value": selector})]

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)[0]}/value", {"text": text})

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)[0]}/click", {})

    def run(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def text(self, selector):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector)

    def errors(self):
        return [e for e in self.call("POST", "/se/log", {"type": "browser"}) if e["level"] == "SEVERE"]

    def close(self):
        self.call("DELETE", "")
        self.driver.send_signal(signal.SIGTERM)
        self.driver.wait(PATIENCE)
        self.driver.stdout.close()


class Server:
    def __init__(self, *options):
        self.process = subprocess.Popen([TERN, "serve", MODEL, "--port", "0", "--chat-template", TEMPLATE,
                                         "--served-model-name", "tiny & <b>bold</b>", *options],
                                        stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r" at (http://[^ ,]+),", line)
            if found:
                self.url = found.group(1)
                return
        raise AssertionError("the server did not start")

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics") as response:
            return sum(float(line.split()[-1]) for line in response.read().decode().splitlines() if line.startswith(name))

    def ask(self, body):
        request = urllib.request.Request(self.url + "/v1/chat/completions", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        with urllib.request.urlopen(request) as response:
            return json.loads(response.read())["choices"][0]["message"]["content"]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        check(self.process.wait(PATIENCE) == 0, "exit code")
        self.process.stderr.close()


def set_value(browser, selector, value):
    browser.run("const e = document.querySelector(arguments[0]); e.value = arguments[1];"
                "e.dispatchEvent(new Event('change', {bubbles: true}))", selector, value)


def test_chat(browser, server):
    browser.call("POST", "/url", {"url": server.url + "/"})
    until(lambda: browser.text("#model") == ["tiny & <b>bold</b>"], "the model's name")
    check(not browser.find("#model b"), "a name is markup")
    set_value(browser, "#temperature", "0")
    set_value(browser, "#tokens", "12")
    browser.type("#text", "the of <i>\ue007")  # Enter
    until(lambda: "tokens/s" in browser.text("#status")[0], "an answer")
    said = browser.text("article div")
    messages = [{"role": "user", "content": "the of <i>"}]
    check(said[0] == "the of <i>" and not browser.find("article i"), said)
    check(said[1] == server.ask({"messages": messages, "temperature": 0, "max_tokens": 12}), said)
    browser.type("#text", "and")
    browser.click("#send")
    until(lambda: len(browser.text("article.assistant div")) == 2 and "tokens/s" in browser.text("#status")[0], "another answer")
    messages += [{"role": "assistant", "content": said[1]}, {"role": "user", "content": "and"}]
    check(browser.text("article.assistant div")[1] == server.ask({"messages": messages, "temperature": 0, "max_tokens": 12}),
          "the conversation goes on")
    return browser


def test_stop(browser, server):
    set_value(browser, "#tokens", "4000")
    set_value(browser, "#temperature", "2")
    browser.click("#clear")
    check(browser.text("article") == [], "a new chat")
    # The model says little and fast: the button is pressed in the browser, with an answer's first text.
    browser.run("""
        const stop = document.getElementById('stop');
        window.presser = new MutationObserver(() => {
            const said = [...document.querySelectorAll('article.assistant div')].pop();
            if (said && said.textContent && !stop.disabled) stop.click();
        });
        window.presser.observe(document.getElementById('log'), {childList: true, characterData: true, subtree: true});""")
    for _ in range(100):  # until an answer has not come in one piece
        browser.click("#clear")
        browser.type("#text", "the\ue007")
        until(lambda: browser.run("return document.getElementById('stop').disabled"), "a stop")
        if browser.text("#status") == ["Stopped."]:
            break
    browser.run("window.presser.disconnect()")
    check(browser.text("#status") == ["Stopped."], "never stopped")
    until(lambda: server.metric("vllm:num_requests_running") == 0, "the server goes on")


def test_access(browser, _server):
    """Every control has a name, and the log is announced."""
    names = browser.run("return [...document.querySelectorAll('button, textarea, input')].filter(e => !e.closest('[hidden]'))"
                        ".map(e => e.labels && e.labels.length ? e.labels[0].textContent : e.textContent)")
    check(all(n.strip() for n in names) and len(names) >= 6, names)
    check(browser.run("return document.documentElement.lang") == "en", "language")
    check(browser.run("const l = document.querySelector('[role=log]'); return l.getAttribute('aria-live')") == "polite", "log")
    others = browser.run("return performance.getEntriesByType('resource').map(e => e.name)"
                         ".filter(n => !n.startsWith(location.origin))")
    check(others == [], "other servers are asked:", others)
    check(browser.errors() == [], browser.errors())


def test_errors(browser, server):
    browser.click("#clear")
    set_value(browser, "#tokens", "5")
    browser.run("document.getElementById('text').value = 'x '.repeat(9000)")
    browser.click("#send")
    until(lambda: browser.text("article.error div"), "an error")
    check("context length" in browser.text("article.error div")[0], browser.text("article.error div"))
    check(browser.run("return document.getElementById('text').value.length") == 18000, "the text is lost")


def test_key(browser):
    with open("page-keys.txt", "w") as file:
        file.write("sk-page\n")
    server = Server("--api-key-file", "page-keys.txt")
    browser.call("POST", "/url", {"url": server.url + "/"})
    until(lambda: "API key" in browser.text("#status")[0], "a key is asked for")
    browser.type("#key", "sk-page\ue004")  # Tab
    until(lambda: browser.text("#model") == ["tiny & <b>bold</b>"], "the key is taken")
    set_value(browser, "#tokens", "3")
    browser.type("#text", "the\ue007")
    until(lambda: "tokens/s" in browser.text("#status")[0], "an answer with a key")
    server.stop()


def main():
    if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
        print("page.py: no chromium or no chromedriver here: skipped")
        sys.exit(1 if os.environ.get("TEST_PACKAGES") == "all" else 77)
    server = Server()
    browser = Browser(os.path.abspath("browser"))
    try:
        for test in (test_chat, test_stop, test_access, test_errors):
            test(browser, server)
            print("ok:", test.__name__, flush=True)
        server.stop()
        test_key(browser)
        print("ok: test_key")
    finally:
        browser.close()


main()
