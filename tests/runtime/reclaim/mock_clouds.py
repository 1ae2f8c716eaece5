"""mock_clouds.py - metadata services of AWS, Azure and Google as a machine sees them, for tests.

Each is a small server on a port of its own that behaves as the real one is documented: 404 until
something happens, tokens that end, lists with incarnations, long polls with etags. Times of hours
are scaled by the test. `fault` is a function of (handler, path) that may answer in its own way and
then returns True. Standard library only.
"""

import email.utils
import http.server
import json
import sys
import threading
import time
import traceback
import urllib.parse


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def reply(self, status, body=b"", headers=()):
        body = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self):
        mock = self.server.mock
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        with mock.changed:
            mock.requests.append((time.monotonic(), self.command, self.path))
            fault = mock.fault
        try:
            if fault is None or not fault(self, self.path):
                mock.answer(self, self.command, urllib.parse.urlsplit(self.path), body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_PUT = do_POST = serve


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        if not isinstance(sys.exc_info()[1], OSError):  # clients come and go
            traceback.print_exc()


class Mock:
    """A service; `with` starts it and stops it. `url` is its base."""

    def __init__(self):
        self.changed = threading.Condition()
        self.requests = []
        self.fault = None

    def __enter__(self):
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.mock = self
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    closing = False

    def wait_for(self, condition, seconds=30):
        """Until condition(), which sees self.requests, holds; looks whenever a request came."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self.changed:
                if condition():
                    return True
            time.sleep(0.01)
        return False

    def count(self, part):
        return sum(part in path for _, _, path in self.requests)


class Aws(Mock):
    META = "/latest/meta-data/"

    def __init__(self, token_seconds=None, cycle="spot"):
        super().__init__()
        self.paths = {"instance-life-cycle": cycle, "events/maintenance/scheduled": "[]",
                      "autoscaling/target-lifecycle-state": "InService"}
        self.tokens = {}
        self.token_seconds = token_seconds  # instead of what is asked for
        self.refused = 0  # 401s

    def set(self, path, value):
        with self.changed:
            self.paths[path] = value if isinstance(value, str) else json.dumps(value)

    def interrupt(self, seconds, action="terminate"):
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        self.set("spot/instance-action", {"action": action, "time": when})

    def answer(self, http, method, url, _):
        if url.path == "/latest/api/token":
            ttl = http.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if method != "PUT":
                return http.reply(405)
            if not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
                return http.reply(400)
            with self.changed:
                token = "AQAAA%08d==" % len(self.tokens)
                self.tokens[token] = time.monotonic() + (self.token_seconds or int(ttl))
            return http.reply(200, token, [("X-Aws-Ec2-Metadata-Token-Ttl-Seconds", ttl)])
        token = http.headers.get("X-aws-ec2-metadata-token", "")
        with self.changed:
            if self.tokens.get(token, 0) <= time.monotonic():
                self.refused += 1
                body = None
            else:
                body = self.paths.get(url.path[len(self.META):]) if url.path.startswith(
                    self.META) else None
                body = (body,)
        if body is None:
            return http.reply(401)
        return http.reply(404, "<html>404 - Not Found</html>") if body[0] is None else http.reply(
            200, body[0])


class Azure(Mock):
    def __init__(self, name="vm_0", first_seconds=0.0, idle_seconds=None):
        super().__init__()
        self.name = name
        self.first_seconds = first_seconds  # that the request takes which switches it on
        self.idle_seconds = idle_seconds  # without a request, after which it switches itself off
        self.events = []
        self.incarnation = 1
        self.last = None  # request
        self.switched_on = 0
        self.approved = []

    def announce(self, kind, seconds, resources=None, event="A1B2", status="Scheduled"):
        with self.changed:
            self.events.append({
                "EventId": event, "EventType": kind, "ResourceType": "VirtualMachine",
                "Resources": [self.name] if resources is None else resources, "EventStatus": status,
                "NotBefore": "" if status == "Started" else email.utils.formatdate(
                    time.time() + seconds, usegmt=True),
                "Description": "", "EventSource": "Platform", "DurationInSeconds": -1})
            self.incarnation += 1

    def withdraw(self):
        with self.changed:
            self.events.clear()
            self.incarnation += 1

    def answer(self, http, method, url, body):
        if http.headers.get("Metadata", "").lower() != "true":
            return http.reply(400, '{"error":"Bad request. Required metadata header not specified"}')
        query = urllib.parse.parse_qs(url.query)
        if url.path == "/metadata/instance" and query.get("api-version"):
            return http.reply(200, json.dumps({"compute": {"name": self.name}}))
        if url.path != "/metadata/scheduledevents" or query.get("api-version") != ["2020-07-01"]:
            return http.reply(404 if url.path != "/metadata/scheduledevents" else 400)
        with self.changed:
            now = time.monotonic()
            is_off = self.last is None or (self.idle_seconds is not None and
                                           now - self.last > self.idle_seconds)
            self.last = now
            self.switched_on += is_off
        if is_off:
            time.sleep(self.first_seconds)
        if method == "POST":
            return self.start(http, body)
        with self.changed:
            document = {"DocumentIncarnation": self.incarnation, "Events": self.events}
            return http.reply(200, json.dumps(document))

    def start(self, http, body):
        try:
            wanted = [request["EventId"] for request in json.loads(body)["StartRequests"]]
        except (ValueError, KeyError, TypeError):
            return http.reply(400)
        with self.changed:
            known = {event["EventId"]: event for event in self.events}
            if not all(event in known for event in wanted):
                return http.reply(400)
            for event in wanted:
                known[event]["EventStatus"] = "Started"
                known[event]["NotBefore"] = ""
                self.approved.append((time.monotonic(), event))
            self.incarnation += 1
        return http.reply(200)


class Gcp(Mock):
    INSTANCE = "/computeMetadata/v1/instance/"
    FLAVOR = [("Metadata-Flavor", "Google"), ("Content-Type", "application/text")]

    def __init__(self):
        super().__init__()
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.version = 0
        self.long_polls = 0

    def etag(self, key):
        return "%012x" % (hash((key, self.values.get(key))) & 0xffffffffffff)

    def set(self, key, value):
        with self.changed:
            self.values[key] = value if isinstance(value, str) else json.dumps(value)
            self.changed.notify_all()

    def answer(self, http, method, url, _):
        if http.headers.get("Metadata-Flavor") != "Google":
            return http.reply(403, "Missing Metadata-Flavor:Google header.")
        if method != "GET" or not url.path.startswith(self.INSTANCE):
            return http.reply(404, headers=self.FLAVOR)
        key = url.path[len(self.INSTANCE):]
        query = urllib.parse.parse_qs(url.query)
        with self.changed:
            if key not in self.values:
                return http.reply(404, headers=self.FLAVOR)
            if query.get("wait_for_change") == ["true"]:
                self.long_polls += 1
                known = query.get("last_etag", [self.etag(key)])[0]
                self.changed.wait_for(lambda: self.closing or self.etag(key) != known,
                                      float(query.get("timeout_sec", ["3600"])[0]))
            return http.reply(200, self.values[key], [*self.FLAVOR, ("ETag", self.etag(key))])
