"""Facts about this installation that belong in a bug report, and none that identify a machine."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path

import accelscale

DISTRIBUTIONS = (
    "attrs",
    "pluggy",
    "nvidia-ml-py",
    "typer",
    "rich",
    "grpcio",
    "protobuf",
    "prometheus-client",
)

SHOWN_VARIABLES = (
    "ACCELSCALE_BACKEND",
    "ACCELSCALE_CONFIG",
    "ACCELSCALE_DISABLE_PLUGINS",
    "ACCELSCALE_INTERVAL",
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZES_ENABLE_SYSMAN",
    "ZE_AFFINITY_MASK",
)

HIDDEN_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")
"""Named when set, without their value: it may hold a password or the name of a host."""

_CONTAINER_MARKS = (
    ("kubernetes", re.compile(r"kubepods")),
    ("docker", re.compile(r"/docker[/-]")),
    ("podman", re.compile(r"libpod")),
    ("containerd", re.compile(r"containerd")),
)


def facts() -> dict[str, object]:
    """Versions, kernel, container and the environment variables that change what is seen."""
    return {
        "accelscale": accelscale.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "container": container() or "no sign of one",
        "distributions": {name: _version(name) for name in DISTRIBUTIONS},
        "variables": _variables(),
    }


def container(root: Path = Path("/")) -> str | None:
    """What kind of container this process runs in, or None where nothing tells of one."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    try:
        cgroups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return next((kind for kind, mark in _CONTAINER_MARKS if mark.search(cgroups)), None)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _variables() -> dict[str, str]:
    home = os.environ.get("HOME", "")
    shown = {}
    for name in SHOWN_VARIABLES:
        if name in os.environ:
            value = os.environ[name]
            shown[name] = value.replace(home, "~") if len(home) > 1 else value
    shown.update({name: "(set)" for name in HIDDEN_VARIABLES if os.environ.get(name)})
    return shown
