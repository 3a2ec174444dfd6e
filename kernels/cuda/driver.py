"""The few calls of NVIDIA's driver that a launch needs. The caller has made a context current; this allocates nothing.

A launch never waits: its errors are those of the call itself, and a fault of the kernel shows at the next wait.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

SHARED_FIXED, SHARED_LIMIT = 1, 8  # function attributes: static shared bytes, the most dynamic ones
CLUSTER, EARLY_START = 4, 6  # launch attributes: cluster dimension, programmatic stream serialization
MULTIPROCESSORS, MAJOR, MINOR, SHARED_OPT_IN = 16, 75, 76, 97  # device attributes


class DriverError(RuntimeError):
    """The driver refused a call."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _cuda() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as absent:
        raise DriverError("no NVIDIA driver is installed: libcuda.so.1 is missing") from absent
    library.cuInit(0)
    return library


def _check(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _cuda().cuGetErrorName(code, ctypes.byref(name))
        raise DriverError(f"{what}: {(name.value or b'unknown error').decode()} ({code})")


@dataclass(frozen=True, slots=True)
class Device:
    """What a launch plan reads of the current device: counts and bytes, never a speed."""

    multiprocessors: int
    capability: tuple[int, int]
    shared_bytes: int

    @property
    def architecture(self) -> str:
        """The name the compiler knows it by."""
        return "sm_{}{}".format(*self.capability)


def current_device() -> Device:
    """The device of the current context."""
    device = ctypes.c_int()
    _check(_cuda().cuCtxGetDevice(ctypes.byref(device)), "no context is current")

    def read(attribute: int) -> int:
        value = ctypes.c_int()
        _check(_cuda().cuDeviceGetAttribute(ctypes.byref(value), attribute, device), "a device attribute")
        return value.value

    return Device(read(MULTIPROCESSORS), (read(MAJOR), read(MINOR)), read(SHARED_OPT_IN))


class Function:
    """A kernel of a loaded cubin; it stays loaded as long as the context."""

    def __init__(self, cubin: bytes, name: str, shared: int) -> None:
        module, self._handle = ctypes.c_void_p(), ctypes.c_void_p()
        _check(_cuda().cuModuleLoadData(ctypes.byref(module), cubin), f"loading {name}")
        _check(_cuda().cuModuleGetFunction(ctypes.byref(self._handle), module, name.encode()), f"finding {name}")
        if shared > 48 * 1024:
            # The most there is, not what a launch takes: counting clusters asks with other sizes.
            fixed = ctypes.c_int()
            _check(_cuda().cuFuncGetAttribute(ctypes.byref(fixed), SHARED_FIXED, self._handle), f"reading {name}")
            most = current_device().shared_bytes - fixed.value
            _check(_cuda().cuFuncSetAttribute(self._handle, SHARED_LIMIT, most), f"{most} bytes shared for {name}")
        self._name, self._shared = name, shared

    def clusters_at_once(self, threads: int, cluster: int, shared: int) -> int:
        """How many clusters of `cluster` blocks with `shared` bytes each the device runs at a time."""
        count = ctypes.c_int()
        config, _kept = _configure((cluster, 1, 1), threads, shared, 0, cluster, False)
        code = _cuda().cuOccupancyMaxActiveClusters(ctypes.byref(count), self._handle, ctypes.byref(config))
        _check(code, f"counting clusters of {cluster}")
        return count.value

    def launch(
        self,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Sequence[Any],
        stream: int,
        cluster: int = 0,
        early: bool = False,
    ) -> None:
        """Queue the kernel on `stream` (an address). `early` lets it start before the kernel before it has ended."""
        config, kept = _configure(grid, threads, self._shared, stream, cluster, early)
        cells = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(value) for value in arguments))
        code = _cuda().cuLaunchKernelEx(ctypes.byref(config), self._handle, cells, None)
        del kept
        _check(code, f"launching {self._name} on {grid}")


def _configure(
    grid: tuple[int, int, int], threads: int, shared: int, stream: int, cluster: int, early: bool
) -> tuple[_Config, object]:
    attributes = (_Attribute * 2)()
    count = 0
    if cluster:
        attributes[count].id = CLUSTER
        attributes[count].value[:3] = (cluster, 1, 1)
        count += 1
    if early:
        attributes[count].id = EARLY_START
        attributes[count].value[0] = 1
        count += 1
    config = _Config((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(threads, 1, 1), shared, stream, attributes, count)
    return config, attributes
