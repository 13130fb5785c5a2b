"""Receipts of acknowledgements: an option of Pulsar's client library that its Python binding does not offer.

The binding's own configuration object is reached by pybind11's conduit protocol, which refuses other types and other
C++ libraries, and the option is set by the library's exported function. Nothing is guessed: if one of them is missing,
there are no receipts.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from collections.abc import Callable

_BINDING: Final[Any] = pulsar._pulsar  # noqa: SLF001  # named nowhere else
_ABI: Final = b"system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1"
_TYPE_INFO: Final = b"St9type_info"  # names of capsules: kept, because a capsule does not copy its name
_CONFIGURATION: Final = b"N6pulsar21ConsumerConfigurationE"
_TYPE: Final = "_ZTIN6pulsar21ConsumerConfigurationE"
_SET: Final = "_ZN6pulsar21ConsumerConfiguration20setAckReceiptEnabledEb"
_IS_SET: Final = "_ZNK6pulsar21ConsumerConfiguration19isAckReceiptEnabledEv"


def check_receipts() -> None:
    """Raises ClusterError (K772) if the installed client library cannot confirm acknowledgements."""
    _enabler()


def with_receipts(client: Any) -> Any:
    """Returns a view of a pulsar.Client whose consumers get a result for each acknowledgement. Raises ClusterError
    (K772) if the installed client library cannot confirm acknowledgements.
    """
    view = pulsar.Client.__new__(pulsar.Client)
    vars(view).update(vars(client), _client=_ReceiptClient(client._client))  # noqa: SLF001  # the binding's own
    return view


class _ReceiptClient:
    """The binding's client, with the option set in each configuration that it subscribes with."""

    def __init__(self, client: Any) -> None:
        self._client, self._enable = client, _enabler()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def subscribe(self, topic: str, subscription: str, configuration: Any) -> Any:
        """Subscribes with the option set. Raises pulsar.PulsarException."""
        self._enable(configuration)
        return self._client.subscribe(topic, subscription, configuration)


@cache
def _enabler() -> Callable[[Any], None]:
    """Function that sets the option in a configuration of the binding, after a test. Raises ClusterError (K772)."""
    try:
        enable = _load()
    except (AttributeError, OSError, TypeError, ValueError) as problem:
        raise ClusterError(error("K772", "acknowledgements cannot be confirmed", str(problem))) from None
    return enable


def _load() -> Callable[[Any], None]:
    """Loads the function. Raises AttributeError, OSError, TypeError or ValueError with the name of the missing part."""
    library = ctypes.CDLL(_BINDING.__file__)  # names are looked for in the libraries that it needs, too
    set_receipts, is_set = getattr(library, _SET), getattr(library, _IS_SET)
    set_receipts.argtypes, set_receipts.restype = [ctypes.c_void_p, ctypes.c_bool], ctypes.c_void_p
    is_set.argtypes, is_set.restype = [ctypes.c_void_p], ctypes.c_bool
    type_info = ctypes.addressof(ctypes.c_char.in_dll(library, _TYPE))
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    asked = new_capsule(type_info, _TYPE_INFO, None)

    def pointer_to(configuration: Any) -> Any:
        return pointer_in(configuration._pybind11_conduit_v1_(_ABI, asked, b"raw_pointer_ephemeral"), _CONFIGURATION)

    def enable(configuration: Any) -> None:
        set_receipts(pointer_to(configuration), True)

    tested = _BINDING.ConsumerConfiguration()
    enable(tested)
    if not is_set(pointer_to(tested)):
        raise ValueError("the client library does not keep the option")
    return enable
