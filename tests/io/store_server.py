#!/usr/bin/env python3
"""store_server.py - an object store for tests, with faults on demand: S3, Google's and Azure's dialects over HTTP.

    store_server.py [--port-file FILE] [--tls PEM]      serves on 127.0.0.1 until it is killed or its stdin ends

Prints its port on the first line of stdout; with --tls, a key and a certificate in one file, it speaks TLS alone. Objects are in memory. Signatures are checked: SigV4 of tern/secret (region any), the GOOG4
form and bearer tokens for Google (bucket names that begin with "gs-"), SharedKey for Azure (account "ternaccount", below /ternaccount/).
Checksums that a request states are compared with its body. Listings are paged by PAGE names, so that paging is always walked.

Faults: POST /_control with JSON {"rules": [...]} or {"seed": N, "rate": R, "actions": [...]}; {} heals. A rule is
{"match": REGEX of "METHOD /path?query", "action": A, "skip": how many matching requests pass first, "times": how many it hits}.
Actions: 500, 503, 429, cut (no answer, nothing done), lost (done, no answer), half (an answer cut in the middle), stall (done, the answer
never comes), slow (a second late), error200 (200 with <Error>), expired, skewed, gone (403 for good), full (507).
GET /_log: the requests so far, one a line, with what was answered. GET /_state: objects and unfinished uploads as JSON.
/_http/NAME: misbehaviour for the HTTP client alone. /latest/..., /computeMetadata/..., /metadata/...: metadata servers with short-lived logins;
/sts/ and /tenant/... give keys for the web identity "web-N", /pod/... for the authorization "pod-N", N as "identity" of /_control says (0). Keys of a
session are "session"/secret, and believed only with the session's token.
"""
import argparse
import base64
import hashlib
import hmac
import json
import random
import re
import ssl
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

ACCESS, SECRET = "tern", "secret"
ACCOUNT, ACCOUNT_KEY = "ternaccount", base64.b64encode(b"a key of the tests, 32 bytes long").decode()
PAGE = 3
PART_MIN = 0


class State:
    """Everything that the requests share."""

    def __init__(self):
        self.lock = threading.RLock()
        self.objects = {}  # "bucket/key" -> (bytes, etag)
        self.uploads = {}  # id -> {"name", "parts": {n: (bytes, etag, sha256)}, "sha256": bool}
        self.blocks = {}  # Azure: name -> {id: bytes}
        self.rules = []
        self.random = None
        self.rate = 0.0
        self.actions = []
        self.log = []
        self.next_id = 0
        self.roles = 0  # role credentials handed out
        self.role_seconds = 3600
        self.identity = 0
        self.stalled = threading.Event()

    def fault(self, line):
        with self.lock:
            for rule in self.rules:
                if rule.get("times", 1) > 0 and re.search(rule["match"], line):
                    if rule.get("skip", 0) > 0:
                        rule["skip"] -= 1
                        continue
                    rule["times"] = rule.get("times", 1) - 1
                    return rule["action"]
            if self.random is not None and self.random.random() < self.rate:
                return self.random.choice(self.actions)
        return None


STATE = State()


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status, code, message="", headers=()):
        super().__init__(code)
        self.status, self.code, self.message, self.headers = status, code, message, headers


def quote(text, safe="-_.~"):
    return urllib.parse.quote(text, safe=safe)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # a header and its body go in one packet

    def log_message(self, *args):
        pass

    # ---- the frame ----

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            self.close_connection = True  # the client went away: nothing was asked
            return
        split = urllib.parse.urlsplit(self.path)
        if split.path == "/_control":
            self.control(json.loads(body))
            return
        if split.path.startswith("/_"):
            self.inner(split.path)
            return
        if split.path.startswith(("/latest/", "/computeMetadata/", "/metadata/", "/token", "/pod/", "/tenant/")):
            self.metadata(split, body)
            return
        action = STATE.fault(f"{self.command} {self.path}")
        if split.path == "/sts/":
            self.sts(body, action)
            return
        self.note = action or ""
        self.run(split, body, action)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def answer(self, status, body=b"", headers=(), half=False):
        with STATE.lock:
            STATE.log.append(f"{self.command} {self.path} {status} {getattr(self, 'note', '')}".rstrip())
        if isinstance(body, str):
            body = body.encode()
        self.send_response(status)
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if half:
            self.wfile.write(body[: len(body) // 2])
            self.cut()
        else:
            self.wfile.write(body)

    def cut(self):
        with STATE.lock:
            STATE.log.append(f"{self.command} {self.path} cut {getattr(self, 'note', '')}")
        self.close_connection = True
        try:
            self.wfile.flush()
        except OSError:
            pass

    def error(self, refused):
        body = (f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{refused.code}</Code>'
                f"<Message>{escape(refused.message)}</Message></Error>")
        self.answer(refused.status, body, [("x-ms-error-code", refused.code), *refused.headers])

    def run(self, split, body, action):
        early = {"500": (500, "InternalError"), "503": (503, "SlowDown"), "429": (429, "TooManyRequests"),
                 "expired": (403, "ExpiredToken"), "gone": (403, "AccessDenied"), "full": (507, "InsufficientStorage"),
                 "error200": (200, "InternalError"), "skewed": (403, "RequestTimeTooSkewed")}
        if action == "cut":
            self.cut()
            return
        if action == "error200" and self.command == "HEAD":
            action = "500"  # no body to hold the error
        if action in early:
            status, code = early[action]
            headers = [("Retry-After", "0")] if action == "503" else []
            self.error(Refused(status, code, "as the test asked", headers))
            return
        try:
            status, reply, headers = self.serve(split, body)
        except Refused as refused:
            self.error(refused)
            return
        if action == "slow":
            time.sleep(1)
        if action == "stall":
            STATE.stalled.wait(30)
            self.cut()
        elif action == "lost":
            self.cut()
        else:
            self.answer(status, reply, headers, half=action == "half" and len(reply) > 1)

    def control(self, wish):
        with STATE.lock:
            STATE.rules = wish.get("rules", [])
            STATE.random = random.Random(wish["seed"]) if "seed" in wish else None
            STATE.rate = wish.get("rate", 0.0)
            STATE.actions = wish.get("actions", [])
            STATE.role_seconds = wish.get("role_seconds", STATE.role_seconds)
            STATE.identity = wish.get("identity", STATE.identity)
            if wish.get("reset"):
                STATE.objects.clear()
                STATE.uploads.clear()
                STATE.blocks.clear()
                STATE.log.clear()
            for name, value in wish.get("damage", {}).items():
                data, etag = STATE.objects[name]
                STATE.objects[name] = (data[:-1] + bytes([data[-1] ^ 1]), etag) if value == "flip" else (data[:-1], etag)
        self.answer(200)

    def inner(self, path):
        if path == "/_log":
            self.answer(200, "\n".join(STATE.log) + "\n")
        elif path == "/_state":
            with STATE.lock:
                state = {"objects": {name: len(data) for name, (data, _) in STATE.objects.items()},
                         "uploads": sorted(upload["name"] for upload in STATE.uploads.values())}
            self.answer(200, json.dumps(state, sort_keys=True))
        elif path == "/_http/huge":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                self.close_connection = True
        elif path == "/_http/junk":
            self.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True
        elif path == "/_http/headers":
            self.send_response(200)
            try:
                for i in range(100000):
                    self.wfile.write(b"x-header: " + b"y" * 1000 + b"\r\n")
            except OSError:
                pass
            self.close_connection = True
        elif path == "/_http/redirect":
            self.answer(302, b"", [("Location", "/_http/plain")])
        elif path == "/_http/silent":
            STATE.stalled.wait(30)
            self.close_connection = True
        elif path == "/_http/drip":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            try:
                for _ in range(300):
                    self.wfile.write(b".")
                    time.sleep(0.1)
            except OSError:
                pass
            self.close_connection = True
        elif path == "/_http/short":
            self.answer(200, b"only this", [("Content-Length", "1000")])
            self.close_connection = True
        else:
            self.answer(200, b"plain", [("X-Thing", "one"), ("ETag", '"e"')])

    # ---- metadata ----

    def new_session(self):
        with STATE.lock:
            STATE.roles += 1
            return {"AccessKeyId": "session", "SecretAccessKey": SECRET, "Token": f"session-{STATE.roles}",
                    "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + STATE.role_seconds))}

    def sts(self, body, action):
        form = {name: values[0] for name, values in urllib.parse.parse_qs(body.decode()).items()}
        refusal = None
        if action in ("500", "503"):
            refusal = (int(action), "ServiceUnavailable")
        elif self.command != "POST" or form.get("Action") != "AssumeRoleWithWebIdentity" or form.get("Version") != "2011-06-15":
            refusal = (400, "InvalidAction")
        elif form.get("WebIdentityToken") != f"web-{STATE.identity}":
            refusal = (400, "InvalidIdentityToken")
        elif form.get("RoleArn") != "arn:aws:iam::123456789012:role/tern" or not form.get("RoleSessionName"):
            refusal = (403, "AccessDenied")
        if action == "cut":
            self.cut()
        elif action == "junk":
            self.answer(200, "<html>not for you</html")
        elif refusal:
            self.answer(refusal[0], f"<ErrorResponse><Error><Type>Sender</Type><Code>{refusal[1]}</Code><Message>by the test</Message>"
                                    "</Error><RequestId>r</RequestId></ErrorResponse>")
        else:
            keys = self.new_session()
            keys["SessionToken"] = keys.pop("Token")
            rows = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in keys.items())
            self.answer(200, '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
                             f"<AssumeRoleWithWebIdentityResult><Audience>a</Audience><Credentials>{rows}</Credentials>"
                             "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")

    def metadata(self, split, body):
        path = split.path
        if path == "/latest/api/token" and self.command == "PUT":
            self.answer(200, "metadata-token")
        elif path.startswith("/latest/meta-data/iam/security-credentials/"):
            if self.headers.get("X-aws-ec2-metadata-token") != "metadata-token":
                self.answer(401)
            elif path.endswith("/"):
                self.answer(200, "the-role")
            else:
                self.answer(200, json.dumps({"Code": "Success", **self.new_session()}))
        elif path.startswith("/pod/"):
            ok = self.headers.get("Authorization") == f"pod-{STATE.identity}"
            self.answer(200 if ok else 401, json.dumps(self.new_session() if ok else {"code": "AccessDenied"}))
        elif path.endswith("/service-accounts/default/token"):
            ok = self.headers.get("Metadata-Flavor") == "Google"
            self.answer(200 if ok else 403, json.dumps({"access_token": "bearer-token", "expires_in": 3600}))
        elif path == "/metadata/identity/oauth2/token":
            ok = self.headers.get("Metadata") == "true" and "resource" in split.query
            self.answer(200 if ok else 400, json.dumps({"access_token": "bearer-token", "expires_in": "3600"}))
        elif path == "/tenant/oauth2/v2.0/token":
            form = {name: values[0] for name, values in urllib.parse.parse_qs(body.decode()).items()}
            ok = form == {"grant_type": "client_credentials", "client_id": "client", "client_assertion": f"web-{STATE.identity}",
                          "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
                          "scope": "https://storage.azure.com/.default"}
            self.answer(200 if ok else 401, json.dumps({"access_token": "bearer-token", "expires_in": 3600}))
        elif path == "/token":
            form = urllib.parse.parse_qs(body.decode())
            ok = len(form.get("assertion", [""])[0].split(".")) == 3
            self.answer(200 if ok else 400, json.dumps({"access_token": "bearer-token", "expires_in": 3600}))
        else:
            self.answer(404)

    # ---- who asks ----

    def check_v4(self, split, body):
        match = re.fullmatch(r"(AWS4|GOOG4)-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/([a-z0-9]+)_request, "
                             r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", self.headers.get("Authorization", ""))
        if not match:
            raise Refused(403, "AccessDenied", "no signature")
        kind, access, day, region, service, last, names, signature = match.groups()
        prefix = "x-goog" if kind == "GOOG4" else "x-amz"
        session = self.headers.get("x-amz-security-token", "")
        is_known = access == "session" and re.fullmatch(r"session-\d+", session) and int(session[8:]) <= STATE.roles
        if (access != ACCESS and not is_known) or last != kind.lower():
            raise Refused(403, "InvalidAccessKeyId", access)
        stamp = self.headers.get(f"{prefix}-date", "")
        given = self.headers.get(f"{prefix}-content-sha256", "")
        if abs(time.mktime(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) - time.timezone - time.time()) > 900:
            raise Refused(403, "RequestTimeTooSkewed", stamp)
        if given != hashlib.sha256(body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch", given)
        pairs = sorted((quote(urllib.parse.unquote(n)), quote(urllib.parse.unquote(v)))
                       for n, _, v in (p.partition("=") for p in split.query.split("&") if p))
        listed = names.split(";")
        for name in self.headers.keys():  # everything of the protocol's own must be signed
            if name.lower().startswith(("x-amz-", "x-goog-", "content-md5", "if-", "range")) and name.lower() not in listed:
                raise Refused(403, "AccessDenied", f"{name} is not signed")
        lines = "".join(f"{n}:{' '.join(self.headers.get(n, '').split())}\n" for n in listed)
        canonical = "\n".join([self.command, split.path, "&".join(f"{n}={v}" for n, v in pairs), lines, names, given])
        scope = f"{day}/{region}/{service}/{last}_request"
        text = "\n".join([f"{kind}-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = (kind + SECRET).encode()
        for word in (day, region, service, f"{last}_request"):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        if not hmac.compare_digest(hmac.new(key, text.encode(), hashlib.sha256).hexdigest(), signature):
            raise Refused(403, "SignatureDoesNotMatch", canonical)

    def check_shared_key(self, split, body):
        given = self.headers.get("Authorization", "")
        if given == "Bearer bearer-token" or "sig=sas" in split.query:
            return
        head = [self.command]
        for name in ("Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
                     "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"):
            value = self.headers.get(name, "")
            head.append("" if name == "Content-Length" and value == "0" else value)
        ms = sorted((n.lower(), " ".join(v.split())) for n, v in self.headers.items() if n.lower().startswith("x-ms-"))
        query = sorted((n.lower(), v) for n, v in urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        text = ("\n".join(head) + "\n" + "".join(f"{n}:{v}\n" for n, v in ms) + f"/{ACCOUNT}{split.path}" +
                "".join(f"\n{n}:{v}" for n, v in query))
        want = base64.b64encode(hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()).decode()
        if given != f"SharedKey {ACCOUNT}:{want}":
            raise Refused(403, "AuthenticationFailed", text)

    def check_body(self, body):
        md5 = self.headers.get("Content-MD5")
        sha256 = self.headers.get("x-amz-checksum-sha256")
        if md5 and md5 != base64.b64encode(hashlib.md5(body).digest()).decode():
            raise Refused(400, "BadDigest", "Content-MD5")
        if sha256 and sha256 != base64.b64encode(hashlib.sha256(body).digest()).decode():
            raise Refused(400, "BadDigest", "x-amz-checksum-sha256")

    # ---- the dialects ----

    def serve(self, split, body):
        is_azure = split.path.startswith(f"/{ACCOUNT}/")
        if is_azure:
            self.check_shared_key(split, body)
        elif split.path.startswith("/gs-") and self.headers.get("Authorization") == "Bearer bearer-token":
            pass
        else:
            self.check_v4(split, body)
        self.check_body(body)
        query = dict(urllib.parse.parse_qsl(split.query, keep_blank_values=True))
        name = urllib.parse.unquote(split.path)[1:]
        with STATE.lock:
            return self.serve_azure(name[len(ACCOUNT) + 1:], query, body) if is_azure else self.serve_s3(name, query, body)

    def put_object(self, name, body, etag):
        exists = name in STATE.objects
        if exists and (self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"):
            raise Refused(412, "PreconditionFailed", name)
        STATE.objects[name] = (body, etag)

    def get_object(self, name):
        if name not in STATE.objects:
            raise Refused(404, "NoSuchKey", name)
        data, etag = STATE.objects[name]
        if self.headers.get("If-Match") not in (None, etag):
            raise Refused(412, "PreconditionFailed", name)
        wish = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        headers = [("ETag", etag)]
        if not wish:
            return 200, data, headers + ([("Content-Length", str(len(data)))] if self.command == "HEAD" else [])
        first, last = int(wish[1]), int(wish[2])
        if first >= len(data):
            raise Refused(416, "InvalidRange", name)
        return 206, data[first:last + 1], headers

    def serve_s3(self, name, query, body):
        bucket, _, key = name.partition("/")
        if self.command == "GET" and not key:
            return self.list_uploads(bucket, query) if "uploads" in query else self.list_objects(bucket, query)
        if "uploads" in query and self.command == "POST":
            STATE.next_id += 1
            upload = f"upload+{STATE.next_id}/="
            STATE.uploads[upload] = {"name": name, "parts": {},
                                     "sha256": self.headers.get("x-amz-checksum-algorithm") == "SHA256"}
            return 200, (f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
                         f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"), []
        if "uploadId" in query:
            return self.serve_upload(name, query, body)
        if self.command == "PUT":
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            self.put_object(name, body, etag)
            return 200, b"", [("ETag", etag)]
        if self.command == "DELETE":
            STATE.objects.pop(name, None)
            return 204, b"", []
        return self.get_object(name)

    def serve_upload(self, name, query, body):
        upload = STATE.uploads.get(query["uploadId"])
        if upload is None or upload["name"] != name:
            raise Refused(404, "NoSuchUpload", name)
        if self.command == "DELETE":
            del STATE.uploads[query["uploadId"]]
            return 204, b"", []
        if self.command == "PUT":
            etag = f'"{hashlib.md5(body).hexdigest()}"'
            sha256 = self.headers.get("x-amz-checksum-sha256", "")
            if upload["sha256"] and not sha256:
                raise Refused(400, "InvalidRequest", "a checksum was promised")
            upload["parts"][int(query["partNumber"])] = (body, etag, sha256)
            return 200, b"", [("ETag", etag)]
        if self.command == "GET":
            after = int(query.get("part-number-marker", 0))
            numbers = [n for n in sorted(upload["parts"]) if n > after]
            page, more = numbers[:PAGE], len(numbers) > PAGE
            rows = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{escape(upload['parts'][n][1])}</ETag>"
                           f"<Size>{len(upload['parts'][n][0])}</Size></Part>" for n in page)
            marker = f"<NextPartNumberMarker>{page[-1]}</NextPartNumberMarker>" if more else ""
            return 200, f"<ListPartsResult><IsTruncated>{str(more).lower()}</IsTruncated>{marker}{rows}</ListPartsResult>", []
        return self.complete(name, query, upload, body.decode())

    def complete(self, name, query, upload, text):
        numbers = [int(n) for n in re.findall(r"<PartNumber>(\d+)</PartNumber>", text)]
        etags = [e.replace("&quot;", '"') for e in re.findall(r"<ETag>([^<]*)</ETag>", text)]
        sums = re.findall(r"<ChecksumSHA256>([^<]*)</ChecksumSHA256>", text)
        if upload["sha256"] and len(sums) != len(numbers):
            raise Refused(400, "InvalidRequest", "a checksum of each part was promised")
        if numbers != sorted(set(numbers)) or not numbers or len(etags) != len(numbers):
            raise Refused(400, "InvalidPartOrder", name)
        data, digests = [], b""
        for i, number in enumerate(numbers):
            part = upload["parts"].get(number)
            if part is None or part[1] != etags[i] or (upload["sha256"] and part[2] != sums[i]):
                raise Refused(400, "InvalidPart", f"part {number}: {part and part[1:]} {etags[i]} {sums[i:i+1]}")
            if i + 1 < len(numbers) and len(part[0]) < PART_MIN:
                raise Refused(400, "EntityTooSmall", f"part {number}")
            data.append(part[0])
            digests += hashlib.md5(part[0]).digest()
        etag = f'"{hashlib.md5(digests).hexdigest()}-{len(numbers)}"'
        STATE.objects[name] = (b"".join(data), etag)
        del STATE.uploads[query["uploadId"]]
        return 200, f"<CompleteMultipartUploadResult><ETag>{escape(etag)}</ETag></CompleteMultipartUploadResult>", []

    def list_objects(self, bucket, query):
        prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
        keys = sorted(n.partition("/")[2] for n in STATE.objects if n.startswith(bucket + "/"))
        keys = [k for k in keys if k.startswith(prefix) and k > after]
        page, more = keys[:PAGE], len(keys) > PAGE
        rows = "".join(f"<Contents><Key>{escape(k)}</Key><Size>{len(STATE.objects[bucket + '/' + k][0])}</Size>"
                       f"<ETag>{escape(STATE.objects[bucket + '/' + k][1])}</ETag></Contents>" for k in page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return 200, (f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}"
                     "</ListBucketResult>"), []

    def list_uploads(self, bucket, query):
        prefix = query.get("prefix", "")
        after = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
        rows = sorted((u["name"].partition("/")[2], i) for i, u in STATE.uploads.items() if u["name"].startswith(bucket + "/"))
        rows = [r for r in rows if r[0].startswith(prefix) and r > after]
        page, more = rows[:PAGE], len(rows) > PAGE
        text = "".join(f"<Upload><Key>{escape(k)}</Key><UploadId>{i}</UploadId></Upload>" for k, i in page)
        markers = (f"<NextKeyMarker>{escape(page[-1][0])}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}"
                   "</NextUploadIdMarker>") if more else ""
        return 200, (f"<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>{markers}{text}"
                     "</ListMultipartUploadsResult>"), []

    def serve_azure(self, name, query, body):
        container, _, key = name.partition("/")
        name = f"az/{name}"
        if query.get("comp") == "list":
            return self.list_blobs(container, query)
        if query.get("comp") == "block" and self.command == "PUT":
            ids = STATE.blocks.setdefault(name, {})
            if any(len(i) != len(query["blockid"]) for i in ids):
                raise Refused(400, "InvalidBlobOrBlock", "ids of different lengths")
            ids[query["blockid"]] = body
            return 201, b"", []
        if query.get("comp") == "blocklist" and self.command == "GET":
            rows = "".join(f"<Block><Name>{i}</Name><Size>{len(b)}</Size></Block>" for i, b in STATE.blocks.get(name, {}).items())
            if not rows:
                raise Refused(404, "BlobNotFound", name)
            return 200, f"\ufeff<BlockList><UncommittedBlocks>{rows}</UncommittedBlocks></BlockList>", []
        if query.get("comp") == "blocklist":
            ids = re.findall(r"<Latest>([^<]*)</Latest>", body.decode())
            blocks = STATE.blocks.get(name, {})
            if not all(i in blocks for i in ids):
                raise Refused(400, "InvalidBlockList", name)
            self.put_object(name, b"".join(blocks[i] for i in ids), f'"0x{len(STATE.log):X}"')
            STATE.blocks.pop(name, None)
            return 201, b"", []
        if self.command == "PUT":
            if self.headers.get("x-ms-blob-type") != "BlockBlob":
                raise Refused(400, "MissingRequiredHeader", "x-ms-blob-type")
            if name in STATE.objects and self.headers.get("If-None-Match") == "*":
                raise Refused(409, "BlobAlreadyExists", name)
            self.put_object(name, body, f'"0x{len(STATE.log):X}"')
            return 201, b"", []
        if self.command == "DELETE":
            if STATE.objects.pop(name, None) is None:
                raise Refused(404, "BlobNotFound", name)
            return 202, b"", []
        return self.get_object(name)

    def list_blobs(self, container, query):
        prefix, after = query.get("prefix", ""), query.get("marker", "")
        start = f"az/{container}/"
        keys = sorted(n[len(start):] for n in STATE.objects if n.startswith(start))
        keys = [k for k in keys if k.startswith(prefix) and k > after]
        page, more = keys[:PAGE], len(keys) > PAGE
        rows = "".join(f"<Blob><Name>{escape(k)}</Name><Properties><Content-Length>{len(STATE.objects[start + k][0])}"
                       f"</Content-Length><Etag>{escape(STATE.objects[start + k][1])}</Etag></Properties></Blob>" for k in page)
        marker = escape(page[-1]) if more else ""
        return 200, (f'\ufeff<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>{rows}</Blobs>'
                     f"<NextMarker>{marker}</NextMarker></EnumerationResults>"), []


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # clients go away: that is what the tests are about


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file")
    parser.add_argument("--tls")
    args = parser.parse_args()
    server = Server(("127.0.0.1", 0), Handler)
    if args.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.tls)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    port = server.server_address[1]
    if args.port_file:
        with open(args.port_file + ".tmp", "w") as file:
            file.write(f"{port}\n")
        import os
        os.rename(args.port_file + ".tmp", args.port_file)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(port, flush=True)
    sys.stdin.read()  # whoever started it is gone


if __name__ == "__main__":
    main()
