#!/usr/bin/env python3
"""operating.py - what operates the server and training, as far as it can be looked at without systemd, Docker, Slurm or Grafana.

  operating.py ROOT TERN

The dashboard asks only for metrics that the server has; the unit is one that systemd reads (where systemd-analyze is
there) and that stays closed; the image has the libraries that the program needs (where dpkg and readelf are there), and
what it copies exists; options that any of them give are options of `tern serve`.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

root, tern = sys.argv[1], sys.argv[2]
findings = []


def read(*parts):
    with open(os.path.join(root, *parts)) as file:
        return file.read()


def must(is_ok, text):
    if not is_ok:
        findings.append(text)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True)


def check_dashboard():
    served = set(re.findall(r'"((?:vllm|tern):\w+)', read("runtime/serve/metrics.c")))
    dashboard = json.loads(read("launch/grafana/tern-serve.json"))
    must(len(served) > 20, "metrics.c: hardly any metric was found")
    ids = [panel["id"] for panel in dashboard["panels"]]
    must(len(ids) == len(set(ids)), "dashboard: two panels have one id")
    asked = set()
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            must(expression.count("(") == expression.count(")") and expression.count("{") == expression.count("}"),
                 f"dashboard: {panel['title']}: brackets of {expression}")
            for name in re.findall(r"((?:vllm|tern):\w+)", expression):
                base = re.sub(r"_(bucket|sum|count)$", "", name)
                asked.add(base)
                must(name in served or base in served, f"dashboard: {panel['title']}: the server has no {name}")
        place = panel["gridPos"]
        must(place["x"] + place["w"] <= 24, f"dashboard: {panel['title']} is wider than the page")
    for variable in dashboard["templating"]["list"]:
        for name in re.findall(r"((?:vllm|tern):\w+)", str(variable.get("query", ""))):
            must(name in served, f"dashboard: variable {variable['name']}: the server has no {name}")
    print(f"dashboard: {len(ids)} panels, {len(asked)} of {len(served)} metrics")


def check_options():
    help_text = output(tern, "serve", "--help").stdout
    for path in ("launch/systemd/tern-serve.service", "launch/docker/Dockerfile", "launch/slurm/serve.sbatch", "bench/serve.py"):
        text = "\n".join(line for line in read(path).splitlines() if "tern" in line or "ENTRYPOINT" in line or "options+=" in line)
        text = re.sub(r".*(docker|tern_cuda|cmake|sbatch) .*", "", text)
        used = set(re.findall(r"(?<![\w-])--(host|port|api-key-file|drain-timeout|max-\w+|tls-\w+)", text))
        for option in used:
            must(f"--{option}" in help_text, f"{path}: tern serve has no --{option}")


def check_unit():
    text = read("launch/systemd/tern-serve.service")
    drain = int(re.search(r"--drain-timeout (\d+)", text).group(1))
    stop = int(re.search(r"TimeoutStopSec=(\d+)", text).group(1))
    must(stop >= drain + 10, f"unit: it is killed after {stop} s, its drain has {drain}")
    if shutil.which("systemd-analyze") is None:
        print("unit: systemd has not read it: there is no systemd-analyze here")
        return
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "tern-serve.service")
        with open(path, "w") as file:
            file.write(text.replace("/usr/local/bin/tern ", os.path.abspath(tern) + " "))
        seen = output("systemd-analyze", "verify", "--man=no", path)
        complaints = [line for line in seen.stderr.splitlines() if "tern-serve.service" in line]
        must(not complaints, f"unit: {complaints}")
        level = re.search(r"exposure level .*: ([0-9.]+)", output("systemd-analyze", "security", "--offline=true", path).stdout)
        if level:
            print(f"unit: exposure {level.group(1)}")
            must(float(level.group(1)) <= 2.0, f"unit: exposure {level.group(1)}, at most 2.0")


def check_training():
    known = set(re.findall(r"^  --([\w-]+)", output(tern, "supervise", "--help").stdout, re.M))
    must(len(known) > 8, "tern supervise: hardly any option was found")
    for path in ("launch/slurm/train.sbatch", "launch/systemd/tern-train.service", "launch/sky/train.yaml", "launch/k8s/mpijob.yaml"):
        text = re.sub(r"\s*#.*", "", read(path))
        command = re.search(r"""supervise"?\]?(.*?)\s--\s(.*)""", text, re.S)
        must(command is not None, f"{path}: no tern supervise with a command after --")
        if command is None:
            continue
        used = re.findall(r"--([\w-]+)", command.group(1))
        for option in used:
            must(option in known, f"{path}: tern supervise has no --{option}")
        must(re.search(r"\btrain\b", command.group(2)), f"{path}: supervises no tern train")
        print(f"{path}: {len(used)} options")
    unit = read("launch/systemd/tern-train.service")
    asked = int(re.search(r"--stop-seconds (\d+)", unit).group(1))
    must(int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) >= asked + 10, "train unit: killed before its own deadline")
    must("SuccessExitStatus=33" in unit and "RestartPreventExitStatus=1 2" in unit, "train unit: exit codes")
    pods = read("launch/k8s/mpijob.yaml")
    asked = int(re.search(r"--stop-seconds\n\s*- \"(\d+)\"", pods).group(1))
    for grace in re.findall(r"terminationGracePeriodSeconds: (\d+)", pods):
        must(int(grace) >= asked + 5, f"mpijob: killed after {grace} s, it may take {asked} s to commit")
    must("recover_on_exit_codes: [33, 34]" in read("launch/sky/train.yaml"), "sky: exit codes")
    batch = read("launch/slurm/train.sbatch")
    traps = re.findall(r"^trap .*$", batch, re.M)
    must(traps == ["trap ask USR2 TERM"], f"train.sbatch: traps {traps}: bash loses one of two different ones")
    must(batch.index("trap ask") < batch.index("scontrol"), "train.sbatch: a signal may come before the trap")


def check_image():
    text = read("launch/docker/Dockerfile")
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", text, re.M)
    names = [name for _, name in stages if name]
    for source in re.findall(r"--from=(\S+)", text):
        must(source in names, f"image: no stage {source}")
    for source in re.findall(r"^COPY (?!--from)(\S+)", text, re.M):
        must(os.path.exists(os.path.join(root, source)), f"image: {source} does not exist")
    must(stages[-1][0] == "cpu", "image: the default is not the CPU's")
    if shutil.which("readelf") is None or shutil.which("dpkg") is None or shutil.which("ldconfig") is None:
        print("image: its libraries were not looked for: that takes readelf, dpkg and ldconfig")
        return
    runtime = text[text.index("AS cpu"):text.index("AS cuda")]
    known = dict(re.findall(r"^\s*(\S+) \(libc6,x86-64.*\) => (\S+)$", output("ldconfig", "-p").stdout, re.M))
    needed = re.findall(r"NEEDED.*\[(.+)\]", output("readelf", "-d", tern).stdout)
    for library in needed:
        owner = output("dpkg", "-S", os.path.realpath(known.get(library, library))).stdout.split(":")[0]
        of_compiler = re.fullmatch(r"libc6|libgcc-s1|lib[a-z]+san\d+", owner)  # what each build has, or sanitizers only
        if owner and not of_compiler:
            must(re.search(rf"(?<![\w-]){re.escape(owner)}(?![\w-])", runtime), f"image: {library} of {owner} is not installed")
    print(f"image: {len(stages)} stages, {len(needed)} libraries")


def check_scripts():
    for path in ("launch/slurm/serve.sbatch", "launch/slurm/train.sbatch", "bench/serve.sh"):
        seen = output("bash", "-n", os.path.join(root, path))
        must(seen.returncode == 0, f"{path}: {seen.stderr}")
        must(os.access(os.path.join(root, path), os.X_OK), f"{path} cannot be executed")


check_dashboard()
check_options()
check_unit()
check_training()
check_image()
check_scripts()
for finding in findings:
    print(f"FAILED: {finding}")
sys.exit(1 if findings else 0)
