// What every part of the native module uses of Pulsar's client library, and how its objects are reached.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

static_assert(_GLIBCXX_USE_CXX11_ABI, "pulsar-client is built with the C++11 ABI of libstdc++");
#if defined(Py_GIL_DISABLED)
#error "free-threaded Python is not supported"
#endif

namespace pulsar {  // only their type identities
class Consumer {};
class Producer {};
class Message {};
class MessageId {};
class Reader {};
}  // namespace pulsar

namespace {

// ---- functions of the library. Members of C++ classes get the object as their first argument; references are pointers.

using Texts = std::map<std::string, std::string>;
struct OptionalPointer {  // std::optional<const T*>, as it is returned
    const void* value;
    bool has_value;
};
using OnAcknowledged = void (*)(int, void*);
using OnSent = void (*)(int, void*, void*);

#define FUNCTIONS(F)                                                                                                   \
    F(receive, "pulsar_consumer_receive_with_timeout", int (*)(void*, void**, int))                                    \
    F(acknowledge, "pulsar_consumer_acknowledge_async_id", void (*)(void*, void*, OnAcknowledged, void*))              \
    F(consumer_topic, "pulsar_consumer_get_topic", const char* (*)(void*))                                             \
    F(subscription, "pulsar_consumer_get_subscription_name", const char* (*)(void*))                                   \
    F(is_connected, "_ZNK6pulsar8Consumer11isConnectedEv", bool (*)(const void*))                                      \
    F(producer_topic, "pulsar_producer_get_topic", const char* (*)(void*))                                             \
    F(producer_name, "pulsar_producer_get_producer_name", const char* (*)(void*))                                      \
    F(send, "pulsar_producer_send_async", void (*)(void*, void*, OnSent, void*))                                       \
    F(message_create, "pulsar_message_create", void* (*)())                                                            \
    F(message_free, "pulsar_message_free", void (*)(void*))                                                            \
    F(set_content, "pulsar_message_set_content", void (*)(void*, const void*, size_t))                                 \
    F(set_null, "pulsar_message_set_null_value", void (*)(void*))                                                      \
    F(set_property, "pulsar_message_set_property", void (*)(void*, const char*, const char*))                          \
    F(set_key, "pulsar_message_set_partition_key", void (*)(void*, const char*))                                       \
    F(set_ordering_key, "pulsar_message_set_ordering_key", void (*)(void*, const char*))                               \
    F(set_event_time, "pulsar_message_set_event_timestamp", void (*)(void*, uint64_t))                                 \
    F(set_deliver_at, "pulsar_message_set_deliver_at", void (*)(void*, uint64_t))                                      \
    F(set_sequence_id, "pulsar_message_set_sequence_id", void (*)(void*, int64_t))                                     \
    F(disable_replication, "pulsar_message_disable_replication", void (*)(void*, int))                                 \
    F(data, "pulsar_message_get_data", const void* (*)(void*))                                                         \
    F(length, "pulsar_message_get_length", uint32_t (*)(void*))                                                        \
    F(has_null, "pulsar_message_has_null_value", int (*)(void*))                                                       \
    F(event_time, "pulsar_message_get_event_timestamp", uint64_t (*)(void*))                                           \
    F(publish_time, "pulsar_message_get_publish_timestamp", uint64_t (*)(void*))                                       \
    F(message_id, "pulsar_message_get_message_id", void* (*)(void*))                                                   \
    F(id_free, "pulsar_message_id_free", void (*)(void*))                                                              \
    F(properties, "_ZNK6pulsar7Message13getPropertiesB5cxx11Ev", const Texts* (*)(const void*))                        \
    F(key, "_ZNK6pulsar7Message15getPartitionKeyB5cxx11Ev", const std::string* (*)(const void*))                       \
    F(ordering_key, "_ZNK6pulsar7Message14getOrderingKeyB5cxx11Ev", const std::string* (*)(const void*))               \
    F(encryption, "_ZNK6pulsar7Message20getEncryptionContextEv", OptionalPointer (*)(const void*))                     \
    F(id_ledger, "_ZNK6pulsar9MessageId8ledgerIdEv", int64_t (*)(const void*))                                         \
    F(id_entry, "_ZNK6pulsar9MessageId7entryIdEv", int64_t (*)(const void*))                                           \
    F(id_partition, "_ZNK6pulsar9MessageId9partitionEv", int32_t (*)(const void*))                                     \
    F(id_batch, "_ZNK6pulsar9MessageId10batchIndexEv", int32_t (*)(const void*))                                       \
    F(id_batch_size, "_ZNK6pulsar9MessageId9batchSizeEv", int32_t (*)(const void*))                                    \
    F(id_serialize, "_ZNK6pulsar9MessageId9serializeERNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",           \
      void (*)(const void*, std::string*))                                                                             \
    F(reader_topic, "pulsar_reader_get_topic", const char* (*)(void*))                                                 \
    F(read_next, "_ZN6pulsar6Reader8readNextERNS_7MessageEi", int (*)(void*, void*, int))                              \
    F(stored_id, "_ZNK6pulsar7Message12getMessageIdEv", const void* (*)(const void*))                                  \
    F(stored_data, "_ZNK6pulsar7Message7getDataEv", const void* (*)(const void*))                                      \
    F(stored_length, "_ZNK6pulsar7Message9getLengthEv", size_t (*)(const void*))                                       \
    F(stored_null, "_ZNK6pulsar7Message12hasNullValueEv", bool (*)(const void*))                                       \
    F(stored_happened, "_ZNK6pulsar7Message17getEventTimestampEv", uint64_t (*)(const void*))                          \
    F(stored_published, "_ZNK6pulsar7Message19getPublishTimestampEv", uint64_t (*)(const void*))

template <typename T>
using Function = T;
struct Library {
#define DECLARE(NAME, SYMBOL, TYPE) Function<TYPE> NAME = nullptr;
    FUNCTIONS(DECLARE)
#undef DECLARE
} lib;

// ---- what `load` was given; set once, never freed

PyTypeObject* delivery_type = nullptr;
PyObject* message_type = nullptr;  // _pulsar.Message
PyObject* empty_text = nullptr;
int result_timeout = 0;
std::atomic<bool> forked{false};

constexpr const char* kConduit = "_pybind11_conduit_v1_";
constexpr const char* kAbi = "system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_1";
constexpr size_t kMessageOffset = 16;  // of the C++ message behind its builder in a pulsar_message_t
constexpr size_t kMessageSize = 16;    // a shared pointer
constexpr Py_ssize_t kMost = 10000;    // messages of a bundle

bool usable() {
    if (forked) PyErr_SetString(PyExc_RuntimeError, "the client library's objects do not survive a fork");
    else if (!lib.receive) PyErr_SetString(PyExc_RuntimeError, "kodo_fast is not loaded");
    else return true;
    return false;
}

// ---- exceptions of C++: none gets to Python's code, which would end the process. Python ends threads by unwinding them, with what
// is no std::exception: that passes.

// A function that Python calls, with MemoryError or RuntimeError for what it throws.
template <auto function>
struct Guarded;
template <typename... Arguments, PyObject* (*function)(Arguments...)>
struct Guarded<function> {
    static PyObject* call(Arguments... arguments) {
        try {
            return function(arguments...);
        } catch (const std::bad_alloc&) {
            return PyErr_NoMemory();
        } catch (const std::exception& problem) {
            return PyErr_Format(PyExc_RuntimeError, "the client library failed: %s", problem.what());
        }
    }
};

// Works without the interpreter, and returns what was thrown. What has a reference to give back does so behind it, and by no
// destructor: a thread that Python ends in here has no interpreter any more.
template <typename Work>
std::exception_ptr released(Work work) {
    std::exception_ptr problem;
    PyThreadState* state = PyEval_SaveThread();
    try {
        work();
    } catch (const std::exception&) {
        problem = std::current_exception();
    }
    PyEval_RestoreThread(state);
    return problem;
}

void rethrow(const std::exception_ptr& problem) {
    if (problem) std::rethrow_exception(problem);
}

// A reference that is given back where something is thrown. Not around what may let the interpreter go.
class Reference {
   public:
    explicit Reference(PyObject* taken) : object_(taken) {}
    Reference(const Reference&) = delete;
    Reference& operator=(const Reference&) = delete;
    ~Reference() { Py_XDECREF(object_); }
    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }

   private:
    PyObject* object_;
};

// The C++ object inside an object of pulsar-client's; nullptr with an exception set where there is none.
template <typename T>
void* pointer_of(PyObject* instance) {
    const std::type_info& type = typeid(T);
    PyObject* asked = PyCapsule_New(const_cast<std::type_info*>(&type), typeid(std::type_info).name(), nullptr);
    if (!asked) return nullptr;
    PyObject* found = PyObject_CallMethod(instance, kConduit, "yOy", kAbi, asked, "raw_pointer_ephemeral");
    Py_DECREF(asked);
    if (!found) return nullptr;
    void* pointer = nullptr;
    if (PyCapsule_CheckExact(found)) pointer = PyCapsule_GetPointer(found, type.name());
    else PyErr_Format(PyExc_TypeError, "%s gives no %s", kConduit, type.name());
    Py_DECREF(found);
    return pointer;
}

void* cpp_message(void* message) { return static_cast<char*>(message) + kMessageOffset; }

// A message that was taken out before leaves an empty shared pointer behind, which no function of the library can read.
bool is_empty(const void* message) {
    void* held;
    std::memcpy(&held, message, sizeof held);
    return !held;
}

// Both are one shared pointer: they change hands without a count.
void exchange(void* one, void* other) {
    char kept[kMessageSize];
    std::memcpy(kept, one, kMessageSize);
    std::memcpy(one, other, kMessageSize);
    std::memcpy(other, kept, kMessageSize);
}

// ---- messages received

struct Received {
    void* message = nullptr;
    void* id = nullptr;
    const Texts* properties = nullptr;
    const std::string *key = nullptr, *ordering_key = nullptr;
    int64_t ledger = 0, entry = 0;
    int32_t partition = 0, batch = 0;
    bool encrypted = false;

    // What the library computes on first access, before the interpreter is taken.
    explicit Received(void* taken) : Received(taken, nullptr) {
        const void* cpp = cpp_message(message);
        id = lib.message_id(message);
        ledger = lib.id_ledger(id), entry = lib.id_entry(id);
        partition = lib.id_partition(id), batch = lib.id_batch(id);
        properties = lib.properties(cpp);
        key = lib.key(cpp), ordering_key = lib.ordering_key(cpp);
        encrypted = batch < 0 && lib.encryption(cpp).has_value;  // of a batch that was taken apart none can be
    }
    Received(Received&& other) : Received(other) { other.message = other.id = nullptr; }
    Received& operator=(const Received&) = delete;
    ~Received() {
        if (id) lib.id_free(id);
        if (message) lib.message_free(message);
    }

    Received(void* taken, std::nullptr_t) : message(taken) {}  // whole from here on: what is thrown afterwards frees it

   private:
    Received(const Received&) = default;
};

// The C++ message as an object of pulsar-client's, for whoever reads what this cannot; it is empty then.
PyObject* handed_back(void* message) {
    PyObject* made = PyObject_CallNoArgs(message_type);
    void* pointer = made ? pointer_of<pulsar::Message>(made) : nullptr;
    if (!pointer) {
        Py_XDECREF(made);
        return nullptr;
    }
    exchange(message, pointer);
    return made;
}

// ---- arguments

bool numbers(PyObject* const* args, Py_ssize_t from, Py_ssize_t count, long long* found) {
    for (Py_ssize_t i = 0; i < count; i++) {
        found[i] = PyLong_AsLongLong(args[from + i]);
        if (found[i] == -1 && PyErr_Occurred()) return false;
    }
    return true;
}

bool arguments(Py_ssize_t given, Py_ssize_t expected) {
    if (given != expected) PyErr_Format(PyExc_TypeError, "%zd arguments, not %zd", expected, given);
    return given == expected;
}

// The message of an object of pulsar-client's, which nobody else has: it is empty afterwards.
bool take_message(PyObject* source, std::vector<Received>& received) {
    void* pointer = pointer_of<pulsar::Message>(source);
    if (!pointer) return false;
    if (is_empty(pointer)) {
        PyErr_SetString(PyExc_ValueError, "the message was taken out before");
        return false;
    }
    void* message = lib.message_create();
    exchange(cpp_message(message), pointer);
    received.emplace_back(message);
    return true;
}

bool is_text(PyObject* text, const char* expected) {
    const char* found = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : nullptr;
    return found && expected && !std::strcmp(found, expected);
}

// Whether the pointer is what it is taken for, as far as names can tell: what a method gives, and what was found.
bool same_object(PyObject* owner, std::initializer_list<std::pair<const char*, const char*>> names) {
    for (const auto& [method, found] : names) {
        PyObject* text = PyObject_CallMethod(owner, method, nullptr);
        bool same = is_text(text, found);
        Py_XDECREF(text);
        if (!same && !PyErr_Occurred()) PyErr_Format(PyExc_RuntimeError, "%s() differs by the C API", method);
        if (!same) return false;
    }
    return true;
}

}  // namespace
