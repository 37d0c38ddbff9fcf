"""What a result depends on besides the network."""

import numpy as np
import pytest

from qdebug.recording import environment


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be another machine; nothing is remembered of it afterwards."""
    caches = (environment.cpu_flags, environment.cpu_model, environment.machine)

    def pretend(system, *, cpuinfo=(), sysctl=""):
        monkeypatch.setattr(environment.sys, "platform", system)
        monkeypatch.setattr(environment, "_cpuinfo", lambda: list(cpuinfo))
        done = type("Done", (), {"stdout": sysctl})
        monkeypatch.setattr(environment.subprocess, "run", lambda *_args, **_keys: done)
        for each in caches:
            each.cache_clear()

    yield pretend
    monkeypatch.undo()
    for each in caches:
        each.cache_clear()


def test_flags_that_matter_to_arithmetic_are_read_on_x86(machine):
    machine("linux", cpuinfo=["model name\t: Fast CPU", "flags\t\t: fpu sse4_1 avx2 fma avx512_vnni amx_int8 nx"])
    assert environment.cpu_flags() == ("sse4_1", "fma", "avx2", "avx512_vnni", "amx_int8")
    assert environment.cpu_model() == "Fast CPU"


def test_flags_that_matter_to_arithmetic_are_read_on_arm(machine):
    machine("linux", cpuinfo=["Features\t: fp asimd aes asimddp i8mm sve bf16"])
    assert set(environment.cpu_flags()) == {"asimd", "asimddp", "i8mm", "sve", "bf16"}


def test_flags_are_spelled_as_on_linux_on_macos(machine):
    machine(
        "darwin",
        sysctl="hw.optional.arm.FEAT_DotProd: 1\nhw.optional.arm.FEAT_I8MM: 0\nhw.optional.arm.FEAT_BF16: 1\nodd line",
    )
    assert environment.cpu_flags() == ("asimddp", "bf16")


def test_a_machine_that_says_nothing_has_no_flags(machine):
    machine("linux")
    assert environment.cpu_flags() == ()
    assert environment.cpu_model()


def test_versions_are_those_installed():
    found = environment.package_versions("hypothesis", "no-such-package-at-all")
    assert found["numpy"] == np.__version__
    assert {"python", "qdebug", "h5py", "ml_dtypes", "hypothesis"} <= found.keys()
    assert "no-such-package-at-all" not in found
