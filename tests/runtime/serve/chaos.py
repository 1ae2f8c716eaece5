"""chaos.py - chaos.py TERN MODEL TEMPLATE, by with_model.sh: clients of tern serve that leave at every stage (chaos.c), on a cache
small enough for preemption. Afterwards nothing runs, waits or holds a block, and the server ends as it should.

SERVE_CHAOS names the client; SERVE_CHAOS_REQUESTS how many requests there are (default 600)."""
import os
import re
import signal
import subprocess
import sys

tern, model, template = sys.argv[1:4]
requests = os.environ.get("SERVE_CHAOS_REQUESTS", "600")
server = subprocess.Popen(
    [tern, "serve", model, "--port", "0", "--served-model-name", "m", "--chat-template", template, "--max-seqs", "8",
     "--max-queue", "40", "--context", "1024", "--kv-bytes", "200K", "--chunk", "64", "--speculate", "3"],
    stderr=subprocess.PIPE, text=True)
port, said = None, []
for line in server.stderr:
    said.append(line)
    found = re.search(r"at http://[^ ]*:(\d+), ready", line)
    if found:
        port = found.group(1)
        break
if port is None:
    sys.exit("FAILED: no server: " + "".join(said))
clients = subprocess.run([os.environ["SERVE_CHAOS"], port, "m", requests, "24"])
server.send_signal(signal.SIGTERM)
rest = server.communicate(timeout=120)[1]
print("".join(said) + rest)
if clients.returncode != 0 or server.returncode != 0:
    sys.exit(f"FAILED: the clients ended with {clients.returncode}, the server with {server.returncode}")
