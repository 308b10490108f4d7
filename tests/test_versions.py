"""What a report of a problem begins with."""

import runpy
import sys

import onnx
import onnxruntime
import pytest

import onnxtrain
from onnxtrain import opsets, versions
from onnxtrain.runtime.device import KINDS


def printed(capsys):
    onnxtrain.show_versions()
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "part",
    [
        f"onnxtrain {onnxtrain.__version__}",
        f"module            {onnxruntime.__version__}",
        "cpu               usable",
        "builtin           usable",
        f"opset {opsets.OPSET}, IR version 10",
        f"opsets up to {onnx.defs.onnx_opset_version()}",
        *KINDS,
        *versions._NEEDED,
        *onnxruntime.get_available_providers(),
    ],
)
def test_it_says(part, capsys):
    assert part in printed(capsys)


def test_the_module_can_be_run(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["onnxtrain"])
    runpy.run_module("onnxtrain", run_name="__main__")
    assert capsys.readouterr().out == printed(capsys)


def test_two_flavours_of_onnxruntime_are_a_problem_with_a_remedy(capsys, monkeypatch):
    monkeypatch.setattr(versions, "installed_runtimes", lambda: {"onnxruntime": "1.20", "onnxruntime-gpu": "1.21"})
    said = printed(capsys)
    assert "2 distributions overwrite each other's files: pip uninstall -y onnxruntime onnxruntime-gpu, then" in said


def test_a_missing_dependency_is_named(capsys, monkeypatch):
    monkeypatch.setattr(versions, "_NEEDED", ("no-such-distribution",))
    assert "no-such-distribution not installed" in printed(capsys)
