"""On which provider onnxruntime-gpu places the nodes of a model, told without a GPU.

onnxruntime-gpu asks for a device, and for handles of CUDA's libraries, before it places nodes. Libraries that stand in
for CUDA's answer: a device is there, its memory is the host's, and each call succeeds. Nothing is computed. The
libraries are compiled for the build of onnxruntime at hand: it names every function that it calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import onnxruntime

from onnxtrain.runtime.device import Device

_LIBRARY = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_cuda.so"

#: The functions whose callers read more than that they succeeded.
_ANSWERS = """
int cudaGetDevice(int *d) { *d = 0; return 0; }
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaDeviceGetAttribute(int *value, int which, int device) { *value = 80; return 0; }
int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }
int cudaDriverGetVersion(int *v) { *v = 13000; return 0; }
int cudaMemGetInfo(size_t *unused, size_t *all) { *unused = *all = 1ul << 34; return 0; }
int cudaMalloc(void **p, size_t n) { *p = malloc(n); return 0; }
int cudaHostAlloc(void **p, size_t n, unsigned flags) { *p = malloc(n); return 0; }
int cudaStreamCreate(void **stream) { *stream = (void *)8; return 0; }
int cudaStreamCreateWithFlags(void **stream, unsigned flags) { *stream = (void *)8; return 0; }
int cudaEventCreate(void **event) { *event = (void *)8; return 0; }
int cudaEventCreateWithFlags(void **event, unsigned flags) { *event = (void *)8; return 0; }
int cublasCreate_v2(void **handle) { *handle = (void *)8; return 0; }
int cublasLtCreate(void **handle) { *handle = (void *)8; return 0; }
int cudnnCreate(void **handle) { *handle = (void *)8; return 0; }
"""


def problem() -> str:
    """Return why no placement can be told, nothing if it can."""
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        return "onnxruntime has no CUDAExecutionProvider: install onnxruntime-gpu"
    if not _LIBRARY.exists():
        return f"no {_LIBRARY.name}: Linux has it"
    missing = [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]
    return f"libraries that stand in for CUDA's need {', '.join(missing)}" if missing else ""


def stand_ins(folder: Path) -> None:
    """Compile, into a folder, each library of CUDA that onnxruntime-gpu is linked to."""
    said = {
        tool: _said(*command, str(_LIBRARY)) for tool, *command in (("nm", "nm", "-D", "-u"), ("elf", "readelf", "-d"))
    }
    called = re.findall(r" U (_*cu\w+)(?:@+(\S+))?$", said["nm"], re.MULTILINE)
    answers = {re.match(r"int (\w+)", line)[1]: line for line in _ANSWERS.split("\n") if line}
    for library in re.findall(r"\[(libcu\S+)\]", said["elf"]):
        versioned = library != "libcuda.so.1"  # of the driver: the others name themselves as the version of a function
        names = sorted({name for name, version in called if version == (library if versioned else "")})
        lines = [answers.get(name, f"int {name}() {{ return 0; }}") for name in names]
        (folder / "stand_in.c").write_text("#include <stdlib.h>\n" + "\n".join(lines))
        (folder / "versions").write_text(f"{library} {{ global: *; }};")
        options = [f"-Wl,-soname,{library}", *(["-Wl,--version-script=versions"] if versioned else [])]
        _said("gcc", "-w", "-shared", "-fPIC", "-o", library, *options, "stand_in.c", folder=folder)


def _said(*command: str, folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def placements(models: Sequence[bytes], libraries: Path) -> list[dict[str, Counter[str]]]:
    """Return, for each model, how many nodes of an operator each provider has: ``{provider: {operator: nodes}}``."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [os.path.join(folder, f"{i}.onnx") for i in range(len(models))]
        for path, content in zip(paths, models, strict=True):
            Path(path).write_bytes(content)
        found = subprocess.run(
            [sys.executable, __file__, *paths],
            env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            check=True,
            capture_output=True,
            text=True,
        )
    return [_read(log) for log in json.loads(found.stdout)]


def _read(log: str) -> dict[str, Counter[str]]:
    """Return what onnxruntime says of the nodes: a heading for each provider, a line for each node."""
    if "Node placements" not in log:
        raise ValueError(f"onnxruntime has placed no nodes: {log[-2000:]}")
    found: dict[str, Counter[str]] = {}
    for line in log[log.index("Node placements") :].splitlines():
        heading = re.search(r"placed on \[(\w+)\]\. Number of nodes: (\d+)", line)
        node = re.search(r"VerifyEachNodeIsAssignedToAnEp\]\s+(\w+) \(", line)
        if heading:
            counts = found[heading[1]] = Counter()
            if "All nodes" in line:
                counts["all"] = int(heading[2])
        elif node:
            counts[node[1]] += 1
    return found


def _log_of(path: str) -> str:
    """Return what onnxruntime logs when it opens a model for a GPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 0
    before = os.dup(2)
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)
        try:
            onnxruntime.InferenceSession(path, options, providers=Device("cuda").providers(), enable_fallback=0)
        except Exception as e:  # nodes are placed before memory is filled, which a stand-in may not bear
            os.write(2, str(e).encode())
        finally:
            os.dup2(before, 2)
        log.seek(0)
        return log.read().decode(errors="replace")


if __name__ == "__main__":
    print(json.dumps([_log_of(path) for path in sys.argv[1:]]), flush=True)
    os._exit(0)  # the stand-ins end no stream
