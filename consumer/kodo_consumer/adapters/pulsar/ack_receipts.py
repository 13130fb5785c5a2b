"""Receipts of acknowledgements, one for a list of messages: an option and a call of Pulsar's client library that its
Python binding does not offer.

The binding's call takes one message, and its callback acquires the interpreter's lock (the GIL) about ten times: when
it is made, for each copy that the library makes of it, and when it is called. Here a whole list has one callback, whose
copies need no lock.

The binding's own objects are reached by pybind11's conduit protocol, which refuses other types and other C++ libraries,
and the library's exported functions are called. Both are tried before they are used: if a part is missing or another
one than is known here, there are no receipts.
"""

from __future__ import annotations

import ctypes
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pulsar

from kodoctl.errors import ClusterError, error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BINDING: Final[Any] = pulsar._pulsar  # noqa: SLF001  # named nowhere else
_ABI: Final = b"system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1"
_TYPE_INFO: Final = b"St9type_info"  # names of capsules: kept, because a capsule does not copy its name
_CONFIGURATION: Final = b"N6pulsar21ConsumerConfigurationE"
_CONSUMER: Final = b"N6pulsar8ConsumerE"
_ID: Final = b"N6pulsar9MessageIdE"
_SET: Final = "_ZN6pulsar21ConsumerConfiguration20setAckReceiptEnabledEb"
_IS_SET: Final = "_ZNK6pulsar21ConsumerConfiguration19isAckReceiptEnabledEv"
_ACKNOWLEDGE: Final = (
    "_ZN6pulsar8Consumer16acknowledgeAsyncERKSt6vectorINS_9MessageIdESaIS2_EERKSt8functionIFvNS_6ResultEEE"
)
_LEDGER: Final = "_ZNK6pulsar9MessageId8ledgerIdEv"
_ID_SIZE: Final = 16  # bytes of a C++ message id, which is a shared pointer
_NUMBERS: Final = 1 << 16
_NOBODY: Final = 0  # number of lists whose result nobody awaits, because all others are in use
_UNKNOWN: Final = -1


def check_receipts() -> None:
    """Raises ClusterError (K772) if the installed client library cannot confirm acknowledgements."""
    _receipts()


def with_receipts(client: Any) -> Any:
    """Returns a view of a pulsar.Client, which has all of the client's state. Consumers that the view subscribes to one
    topic (no list or pattern) have each acknowledgement confirmed by the broker; `acknowledge_list` reports that.
    Raises ClusterError (K772) if the installed client library cannot confirm acknowledgements.
    """
    view = pulsar.Client.__new__(pulsar.Client)
    vars(view).update(vars(client), _client=_ReceiptClient(client._client))  # noqa: SLF001  # the binding's own
    return view


def acknowledge_list(consumer: Any, tokens: Sequence[object], on_result: Callable[[int], object]) -> None:
    """Queues acknowledgements at a consumer of the binding, which subscribed by a client of `with_receipts`.
    `on_result`: called once with the result of all of them, on a thread of the client library or within this call: 0 if
    the broker has them, -1 if nobody will know because too many results are awaited, else the library's number of an
    error. Raises AttributeError or ValueError, and queues nothing, if a token is no message id of the binding.
    """
    _receipts().acknowledge(consumer, tokens, on_result)


class _ReceiptClient:
    """The binding's client, with the option set in each configuration with which it subscribes to one topic (no list or
    pattern).
    """

    def __init__(self, client: Any) -> None:
        self._client, self._enable = client, _receipts().enable

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def subscribe(self, topic: str, subscription: str, configuration: Any) -> Any:
        """Subscribes with the option set. Raises pulsar.PulsarException."""
        self._enable(configuration)
        return self._client.subscribe(topic, subscription, configuration)


class _Callback(ctypes.Structure):
    """A std::function<void(Result)> of libstdc++ whose state is a number of 16 bits.

    `copy` is called with (target, source, operation), and is memmove: it copies two bytes, because the operation is 2
    for a copy, and for a destruction, which is 3, target and source are the same. It needs no interpreter.
    """

    _fields_ = (
        ("number", ctypes.c_uint16), ("rest", ctypes.c_byte * 14), ("copy", ctypes.c_void_p), ("call", ctypes.c_void_p),
    )  # fmt: skip


class _Receipts:
    """The library's functions, tried. Raises AttributeError, OSError, TypeError or ValueError with the name of a
    missing part.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(_BINDING.__file__)  # names are looked for in the libraries that it needs, too
        self._set, is_set = getattr(library, _SET), getattr(library, _IS_SET)
        self._set.argtypes, self._set.restype = [ctypes.c_void_p, ctypes.c_bool], ctypes.c_void_p
        is_set.argtypes, is_set.restype = [ctypes.c_void_p], ctypes.c_bool
        self._acknowledge, ledger = getattr(library, _ACKNOWLEDGE), getattr(library, _LEDGER)
        self._acknowledge.argtypes, self._acknowledge.restype = [ctypes.c_void_p] * 3, None
        ledger.argtypes, ledger.restype = [ctypes.c_void_p], ctypes.c_int64
        self._configuration_at, self._consumer_at, self._id_at = (
            _address_reader(library, name) for name in (_CONFIGURATION, _CONSUMER, _ID)
        )
        self._free = deque(range(_NOBODY + 1, _NUMBERS))
        self._awaited: dict[int, Callable[[int], object]] = {}
        self._on_result = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint16), ctypes.POINTER(ctypes.c_int8))(
            self._report
        )
        self._copy = ctypes.cast(ctypes.memmove, ctypes.c_void_p).value
        self._call = ctypes.cast(self._on_result, ctypes.c_void_p).value

        configuration = _BINDING.ConsumerConfiguration()
        self.enable(configuration)
        if not is_set(self._configuration_at(configuration)):
            raise ValueError("the client library does not keep the option")
        ids = [_BINDING.MessageId(-1, ledger_id, 1, -1) for ledger_id in (3, 5)]
        start, _copies = self._copied(ids)
        if [ledger(start + at * _ID_SIZE) for at in range(2)] != [3, 5]:
            raise ValueError("the client library has other message ids")
        results: list[int] = []
        self.acknowledge(_BINDING.Consumer(), ids, results.append)
        if results != [pulsar.Result.ConsumerNotInitialized.value]:
            raise ValueError("the client library has other callbacks")

    def enable(self, configuration: Any) -> None:
        """Sets the option in a configuration of the binding."""
        self._set(self._configuration_at(configuration), True)

    def acknowledge(self, consumer: Any, tokens: Sequence[object], on_result: Callable[[int], object]) -> None:
        """See acknowledge_list."""
        start, _copies = self._copied(tokens)
        end, address = start + len(tokens) * _ID_SIZE, self._consumer_at(consumer)
        try:
            number = self._free.popleft()
        except IndexError:
            number = _NOBODY
        if number != _NOBODY:
            self._awaited[number] = on_result
        ids = (ctypes.c_void_p * 3)(start, end, end)  # a std::vector: its begin, its end, and the end of its room
        callback = _Callback(number, copy=self._copy, call=self._call)
        self._acknowledge(address, ctypes.addressof(ids), ctypes.addressof(callback))
        if number == _NOBODY:
            on_result(_UNKNOWN)

    def _copied(self, tokens: Sequence[object]) -> tuple[int, object]:
        """Address of a block with the C++ message ids of the tokens, and the object that keeps the block."""
        address = self._id_at
        block = ctypes.create_string_buffer(b"".join([ctypes.string_at(address(one), _ID_SIZE) for one in tokens]))
        return ctypes.addressof(block), block

    def _report(self, number: Any, result: Any) -> None:
        if number[0] != _NOBODY:
            on_result = self._awaited.pop(number[0])
            self._free.append(number[0])
            on_result(result[0])


@cache
def _receipts() -> _Receipts:
    """The library's functions. Raises ClusterError (K772)."""
    try:
        return _Receipts()
    except (AttributeError, OSError, TypeError, ValueError) as problem:
        raise ClusterError(error("K772", "acknowledgements cannot be confirmed", str(problem))) from None


def _address_reader(library: ctypes.CDLL, name: bytes) -> Callable[[Any], int]:
    """Function that returns the address of the C++ object in an object of the binding; `name`: its mangled type."""
    type_info = ctypes.addressof(ctypes.c_char.in_dll(library, f"_ZTI{name.decode()}"))
    new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", ctypes.pythonapi)
    )
    pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    asked = new_capsule(type_info, _TYPE_INFO, None)

    def address(wrapped: Any) -> int:
        found: int = pointer_in(wrapped._pybind11_conduit_v1_(_ABI, asked, b"raw_pointer_ephemeral"), name)
        return found

    return address
