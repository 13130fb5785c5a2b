// The border to Pulsar's client library in bundles: read, acknowledge, publish, receipts.
//
// Nothing is linked and no header of the library is used: its functions are found, at import, in the very libpulsar that
// pulsar-client's wheel brings and has loaded. Clients, consumers and producers stay pulsar-client's own; their C++ objects
// are reached by pybind11's conduit protocol, which also refuses another C++ standard library.
//
// Rules: no call into the library while this thread has the interpreter, but for getters and frees; no Python on threads of
// the library, and nothing that throws; what Python calls and may throw is `Guarded`; no `noexcept` and no `catch (...)` around a
// place that takes the interpreter back, because Python ends threads there by unwinding them when it ends itself.
#include "_arrow.hpp"
#include "_library.hpp"

namespace {

// ---- Token: what a message is acknowledged by. It answers as pulsar-client's MessageId does.

struct Token {
    PyObject_HEAD void* id;
};
PyTypeObject* token_type = nullptr;

void token_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    if (void* id = reinterpret_cast<Token*>(self)->id) lib.id_free(id);
    PyObject_Free(self);
    Py_DECREF(type);
}

// Takes the id, also where it fails.
PyObject* new_token(void* id) {
    Token* token = PyObject_New(Token, token_type);
    if (token) token->id = id;
    else lib.id_free(id);
    return reinterpret_cast<PyObject*>(token);
}

void* id_of(PyObject* self) { return reinterpret_cast<Token*>(self)->id; }

PyObject* token_ledger(PyObject* self, PyObject*) { return PyLong_FromLongLong(lib.id_ledger(id_of(self))); }
PyObject* token_entry(PyObject* self, PyObject*) { return PyLong_FromLongLong(lib.id_entry(id_of(self))); }
PyObject* token_partition(PyObject* self, PyObject*) { return PyLong_FromLong(lib.id_partition(id_of(self))); }
PyObject* token_batch(PyObject* self, PyObject*) { return PyLong_FromLong(lib.id_batch(id_of(self))); }
PyObject* token_serialize(PyObject* self, PyObject*) {
    std::string found;
    lib.id_serialize(id_of(self), &found);
    return PyBytes_FromStringAndSize(found.data(), static_cast<Py_ssize_t>(found.size()));
}
PyObject* token_str(PyObject* self) {
    const void* id = id_of(self);
    return PyUnicode_FromFormat("(%lld,%lld,%d,%d)", static_cast<long long>(lib.id_ledger(id)),
                                static_cast<long long>(lib.id_entry(id)), static_cast<int>(lib.id_partition(id)),
                                static_cast<int>(lib.id_batch(id)));
}

// ---- the deliveries made of messages received

PyObject* text_of(const std::string& text) {
    if (text.empty()) return Py_NewRef(empty_text);
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}

// Names of properties come again and again: the last ones are kept, few enough for a sender who invents them.
struct Name {
    size_t size = 0;
    char bytes[64];
    PyObject* text = nullptr;
};
Name names[256];

PyObject* name_of(const std::string& bytes) {
    if (bytes.empty() || bytes.size() > sizeof(Name::bytes)) return text_of(bytes);
    unsigned hash = static_cast<unsigned>(bytes.size());
    for (unsigned char one : bytes) hash = hash * 33 + one;
    Name& name = names[(hash ^ (hash >> 8)) % 256];
    if (name.size == bytes.size() && !std::memcmp(name.bytes, bytes.data(), name.size)) return Py_NewRef(name.text);
    PyObject* text = text_of(bytes);
    if (text) {
        PyObject* old = std::exchange(name.text, Py_NewRef(text));
        name.size = bytes.size();
        std::memcpy(name.bytes, bytes.data(), name.size);
        Py_XDECREF(old);
    }
    return text;
}

PyObject* properties_of(const Texts& texts) {
    PyObject* found = PyDict_New();
    if (!found) return nullptr;
    for (const auto& [bytes, value] : texts) {
        PyObject* name = name_of(bytes);
        PyObject* text = name ? text_of(value) : nullptr;
        int failed = text ? PyDict_SetItem(found, name, text) : -1;
        Py_XDECREF(name);
        Py_XDECREF(text);
        if (failed) {
            Py_DECREF(found);
            return nullptr;
        }
    }
    return found;
}

PyObject* payload_of(void* message) {
    uint32_t length = lib.length(message);
    if (!length && lib.has_null(message)) return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize(static_cast<const char*>(lib.data(message)), length);
}

PyObject* entry_of(const Received& one) {
    return Py_BuildValue("LLi", static_cast<long long>(one.ledger), static_cast<long long>(one.entry),
                         static_cast<int>(one.partition));
}

// A tuple of a delivery's fields, whose token has the id then; nullptr with an exception set, UnicodeDecodeError for what is
// no text.
PyObject* delivery_of(Received& one, PyObject* entry, PyTypeObject* type) {
    if (!type) return PyErr_Format(PyExc_RuntimeError, "kodo_fast is not loaded for deliveries");
    PyObject* made = type->tp_alloc(type, 11);
    if (!made) return nullptr;
#if PY_VERSION_HEX >= 0x030E0000
    reinterpret_cast<PyTupleObject*>(made)->ob_hash = -1;  // not known yet
#endif
    Py_ssize_t at = 0;
    bool fine = true;
    auto add = [&](PyObject* value) { PyTuple_SET_ITEM(made, at++, value), fine = fine && value; };
    add(Py_NewRef(entry));
    add(Py_NewRef(Py_None));  // the token, when all else is there
    add(payload_of(one.message));
    if (fine) add(properties_of(*one.properties));
    if (fine) add(text_of(*one.key));
    if (fine) add(text_of(*one.ordering_key));
    if (fine) add(PyLong_FromUnsignedLongLong(lib.event_time(one.message)));
    if (fine) add(PyLong_FromUnsignedLongLong(lib.publish_time(one.message)));
    if (fine) add(PyLong_FromLong(one.batch));
    if (fine) add(Py_NewRef(empty_text));
    if (fine) add(Py_NewRef(empty_text));
    PyObject* token = fine ? new_token(std::exchange(one.id, nullptr)) : nullptr;
    if (!token) {
        Py_DECREF(made);
        return nullptr;
    }
    PyObject* none = PyTuple_GET_ITEM(made, 1);
    PyTuple_SET_ITEM(made, 1, token);
    Py_DECREF(none);
    return made;
}

// ([Delivery or None], [(index, _pulsar.Message)] of those that are None, result)
PyObject* deliveries_of(std::vector<Received>& received, int result, PyTypeObject* type) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(received.size()));
    PyObject* odd = list ? PyList_New(0) : nullptr;
    PyObject* entry = nullptr;
    const Received* of_entry = nullptr;
    bool fine = odd;
    for (size_t i = 0; fine && i < received.size(); i++) {
        Received& one = received[i];
        if (!of_entry || one.ledger != of_entry->ledger || one.entry != of_entry->entry ||
            one.partition != of_entry->partition) {
            Py_XDECREF(entry);
            entry = entry_of(one), of_entry = &one;
            if (!(fine = entry)) break;
        }
        PyObject* made = one.encrypted ? nullptr : delivery_of(one, entry, type);
        if (!made) {
            if (!one.encrypted && !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) fine = false;
            if (!fine) break;
            PyErr_Clear();
            PyObject* raw = handed_back(cpp_message(one.message));
            PyObject* pair = raw ? Py_BuildValue("nN", static_cast<Py_ssize_t>(i), raw) : nullptr;
            fine = pair && !PyList_Append(odd, pair);
            Py_XDECREF(pair);
            made = Py_NewRef(Py_None);
        }
        PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), made);
    }
    Py_XDECREF(entry);
    if (fine) return Py_BuildValue("NNi", list, odd, result);
    Py_XDECREF(list);
    Py_XDECREF(odd);
    return nullptr;
}

// ---- Reader: one consumer

struct Failures {  // counted by threads of the library, which may outlive the reader
    std::atomic<long> users{1}, count{0};
    void leave() {
        if (users.fetch_sub(1) == 1) delete this;
    }
};
struct Reader {
    PyObject_HEAD PyObject* owner;  // keeps the consumer
    void* consumer;
    Failures* failures;
};
PyTypeObject* reader_type = nullptr;

PyObject* reader_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* owner;
    if (!usable() || !PyArg_ParseTuple(args, "O", &owner)) return nullptr;
    void* consumer = pointer_of<pulsar::Consumer>(owner);
    if (!consumer || !same_object(owner, {{"topic", lib.consumer_topic(consumer)}, {"subscription_name", lib.subscription(consumer)}}))
        return nullptr;
    Reader* reader = reinterpret_cast<Reader*>(type->tp_alloc(type, 0));
    if (!reader) return nullptr;
    reader->owner = Py_NewRef(owner), reader->consumer = consumer;
    if ((reader->failures = new (std::nothrow) Failures)) return reinterpret_cast<PyObject*>(reader);
    Py_DECREF(reader);
    return PyErr_NoMemory();
}

void reader_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    Reader* reader = reinterpret_cast<Reader*>(self);
    if (reader->failures) reader->failures->leave();
    Py_XDECREF(reader->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

// read(first, most, most_bytes, wait_ms) -> ([Delivery | None], [(index, _pulsar.Message)], result)
PyObject* reader_read(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long limits[3];
    if (!usable() || !arguments(count, 4) || !numbers(args, 1, 3, limits)) return nullptr;
    auto [most, most_bytes, wait] = limits;
    if (most < 1 || most > kMost || wait < 0 || wait > 60000)
        return PyErr_Format(PyExc_ValueError, "1 to %zd messages, 0 to 60000 ms", kMost);
    void* consumer = reinterpret_cast<Reader*>(self)->consumer;
    std::vector<Received> received;
    received.reserve(static_cast<size_t>(most));
    if (args[0] != Py_None && !take_message(args[0], received)) return nullptr;
    int result = 0;
    rethrow(released([&, most = most, most_bytes = most_bytes, wait = wait] {
        long long bytes = received.empty() ? 0 : lib.length(received[0].message);
        while (static_cast<long long>(received.size()) < most && bytes < most_bytes) {
            void* message = nullptr;
            result = lib.receive(consumer, &message, received.empty() ? static_cast<int>(wait) : 0);
            if (result) break;
            received.emplace_back(message);
            bytes += lib.length(message);
        }
    }));
    return deliveries_of(received, result == result_timeout ? 0 : result, delivery_type);
}

void acknowledged(int result, void* context) {
    Failures* failures = static_cast<Failures*>(context);
    if (result) failures->count++;
    failures->leave();
}

// acknowledge([token, ...]) -> tokens that are none of ours, for pulsar-client
PyObject* reader_acknowledge(PyObject* self, PyObject* tokens) {
    if (!usable()) return nullptr;
    Reference found(PySequence_Tuple(tokens)), left(found.get() ? PyList_New(0) : nullptr);
    if (!left.get()) return nullptr;
    std::vector<void*> ids;
    ids.reserve(static_cast<size_t>(PyTuple_GET_SIZE(found.get())));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(found.get()); i++) {
        PyObject* token = PyTuple_GET_ITEM(found.get(), i);
        if (Py_TYPE(token) == token_type) ids.push_back(id_of(token));
        else if (PyList_Append(left.get(), token)) return nullptr;
    }
    Reader* reader = reinterpret_cast<Reader*>(self);
    PyObject *all = found.release(), *others = left.release();  // all: keeps the tokens
    std::exception_ptr problem = released([&] {
        for (void* id : ids) {
            reader->failures->users++;
            lib.acknowledge(reader->consumer, id, acknowledged, reader->failures);
        }
    });
    Py_DECREF(all);
    if (problem) Py_DECREF(others);
    rethrow(problem);
    return others;
}

PyObject* reader_failures(PyObject* self, PyObject*) {
    return PyLong_FromLong(reinterpret_cast<Reader*>(self)->failures->count.exchange(0));
}

// ---- MessageReader: one reader of stored messages, whose tuples have a type of its own

struct MessageReader {
    PyObject_HEAD PyObject* owner;  // keeps the reader
    void* reader;
    PyTypeObject* type;
};

// Whether objects of the type are tuples and nothing else.
bool plain_tuple(PyTypeObject* type) {
    return PyType_IsSubtype(type, &PyTuple_Type) && type->tp_basicsize == PyTuple_Type.tp_basicsize;
}

// MessageReader(of pulsar-client's, type of the tuples)
PyObject* message_reader_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *owner, *made;
    if (!usable() || !PyArg_ParseTuple(args, "OO!", &owner, &PyType_Type, &made)) return nullptr;
    PyTypeObject* tuple = reinterpret_cast<PyTypeObject*>(made);
    if (!plain_tuple(tuple)) return PyErr_Format(PyExc_TypeError, "%s is no plain tuple", tuple->tp_name);
    void* found = pointer_of<pulsar::Reader>(owner);
    if (!found || !same_object(owner, {{"topic", lib.reader_topic(found)}})) return nullptr;
    MessageReader* reader = reinterpret_cast<MessageReader*>(type->tp_alloc(type, 0));
    if (!reader) return nullptr;
    reader->owner = Py_NewRef(owner), reader->reader = found;
    reader->type = reinterpret_cast<PyTypeObject*>(Py_NewRef(made));
    return reinterpret_cast<PyObject*>(reader);
}

void message_reader_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    MessageReader* reader = reinterpret_cast<MessageReader*>(self);
    Py_XDECREF(reader->owner);
    Py_XDECREF(reinterpret_cast<PyObject*>(reader->type));
    type->tp_free(self);
    Py_DECREF(type);
}

// read(most, most_bytes, wait_ms) -> ([tuple | None], [(index, _pulsar.Message)], result)
PyObject* message_reader_read(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long limits[3];
    if (!usable() || !arguments(count, 3) || !numbers(args, 0, 3, limits)) return nullptr;
    auto [most, most_bytes, wait] = limits;
    if (most < 1 || most > kMost || wait < 0 || wait > 60000)
        return PyErr_Format(PyExc_ValueError, "1 to %zd messages, 0 to 60000 ms", kMost);
    MessageReader* reader = reinterpret_cast<MessageReader*>(self);
    std::vector<Received> received;
    received.reserve(static_cast<size_t>(most));
    int result = 0;
    rethrow(released([&, most = most, most_bytes = most_bytes, wait = wait] {
        long long bytes = 0;
        while (static_cast<long long>(received.size()) < most && bytes < most_bytes) {
            Received next(lib.message_create(), nullptr);  // frees it where nothing was read
            result = lib.read_next(reader->reader, cpp_message(next.message), received.empty() ? static_cast<int>(wait) : 0);
            if (result) break;
            received.emplace_back(std::exchange(next.message, nullptr));
            bytes += lib.length(received.back().message);
        }
    }));
    return deliveries_of(received, result == result_timeout ? 0 : result, reader->type);
}

// delivery(message[, type]) -> Delivery, or a tuple of the type; None for one that pulsar-client has to read, which is as it was.
// For the self-test.
PyObject* module_delivery(PyObject*, PyObject* args) {
    PyObject *source, *given = nullptr;
    if (!usable() || !PyArg_ParseTuple(args, "O|O!", &source, &PyType_Type, &given)) return nullptr;
    PyTypeObject* type = given ? reinterpret_cast<PyTypeObject*>(given) : delivery_type;
    if (type && !plain_tuple(type)) return PyErr_Format(PyExc_TypeError, "%s is no plain tuple", type->tp_name);
    std::vector<Received> received;
    received.reserve(1);
    if (!take_message(source, received)) return nullptr;
    PyObject* entry = entry_of(received[0]);
    PyObject* made = entry ? delivery_of(received[0], entry, type) : nullptr;
    Py_XDECREF(entry);
    if (made || !PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) return made;
    PyErr_Clear();
    exchange(cpp_message(received[0].message), pointer_of<pulsar::Message>(source));
    Py_RETURN_NONE;
}

// position(message id of pulsar-client's) -> (ledger, entry, partition, batch index). For the self-test.
PyObject* module_position(PyObject*, PyObject* source) {
    void* id = usable() ? pointer_of<pulsar::MessageId>(source) : nullptr;
    if (!id) return nullptr;
    return Py_BuildValue("LLii", static_cast<long long>(lib.id_ledger(id)), static_cast<long long>(lib.id_entry(id)),
                         static_cast<int>(lib.id_partition(id)), static_cast<int>(lib.id_batch(id)));
}

// ---- Sender: results of sends gather here, on threads of the library, until somebody takes them

struct Results;
struct Sent {  // one message on its way, then its result: made by who sends, so that threads of the library allocate nothing
    Results* results;
    long long number, ticket;
    int result = 0;
    void* id = nullptr;
    Sent* next = nullptr;
    ~Sent() {
        if (id) lib.id_free(id);
    }
};
struct Chain {  // of results, in their order
    Sent *first = nullptr, *last = nullptr;
    Chain() = default;
    Chain(const Chain&) = delete;
    Chain& operator=(const Chain&) = delete;
    ~Chain() {
        while (first) delete std::exchange(first, first->next);
    }
    void add(Sent* one) { (first ? last->next : first) = one, last = one; }
    void swap(Chain& other) { std::swap(first, other.first), std::swap(last, other.last); }
};
struct Results {
    std::mutex lock;
    std::condition_variable some;
    Chain waiting;
    bool woken = false;
    std::atomic<long> users{1};
    void add(Sent* one) {
        std::lock_guard<std::mutex> locked(lock);
        bool is_first = !waiting.first;
        waiting.add(one);
        if (is_first) some.notify_one();
    }
    void leave() {
        if (users.fetch_sub(1) == 1) delete this;
    }
};
struct Producer {
    PyObject_HEAD PyObject* owner;  // keeps the producer
    void* producer;
    long long number;
};
struct Sender {
    PyObject_HEAD Results* results;
};
PyTypeObject *producer_type = nullptr, *sender_type = nullptr;

// Producer(of pulsar-client's, number that its results come with)
PyObject* producer_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* owner;
    long long number;
    if (!usable() || !PyArg_ParseTuple(args, "OL", &owner, &number)) return nullptr;
    void* found = pointer_of<pulsar::Producer>(owner);
    if (!found || !same_object(owner, {{"topic", lib.producer_topic(found)}, {"producer_name", lib.producer_name(found)}}))
        return nullptr;
    Producer* producer = reinterpret_cast<Producer*>(type->tp_alloc(type, 0));
    if (!producer) return nullptr;
    producer->owner = Py_NewRef(owner), producer->producer = found, producer->number = number;
    return reinterpret_cast<PyObject*>(producer);
}

void producer_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    Py_XDECREF(reinterpret_cast<Producer*>(self)->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* sender_new(PyTypeObject* type, PyObject*, PyObject*) {
    Sender* sender = usable() ? reinterpret_cast<Sender*>(type->tp_alloc(type, 0)) : nullptr;
    if (!sender || (sender->results = new (std::nothrow) Results)) return reinterpret_cast<PyObject*>(sender);
    Py_DECREF(sender);
    return PyErr_NoMemory();
}

void sender_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    if (Results* results = reinterpret_cast<Sender*>(self)->results) results->leave();
    type->tp_free(self);
    Py_DECREF(type);
}

// The message that this thread is sending, and why it was refused before anything of it was sent.
thread_local Sent* sending = nullptr;
thread_local int refusal = 0;

void sent(int result, void* id, void* context) {
    Sent* one = static_cast<Sent*>(context);
    Results* results = one->results;
    one->result = result, one->id = id;
    if (one == sending && result) {
        refusal = result;
        delete one;
    } else {
        results->add(one);
    }
    results->leave();
}

// The text as C wants it; nullptr for what C would cut, for what has no UTF-8 and for what is no text.
const char* whole_text(PyObject* text) {
    Py_ssize_t size;
    const char* found = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : nullptr;
    return found && static_cast<Py_ssize_t>(std::strlen(found)) == size ? found : nullptr;
}

bool is_time(PyObject* value, long long& time) {
    if (!PyLong_CheckExact(value)) return false;
    time = PyLong_AsLongLong(value);
    return time >= 0;
}

// A message to be sent, as far as Python has to say, and its place among the results: the rest is done without the interpreter.
// Texts and payload are those of Python's objects, which a Batch keeps.
struct Ready {
    const char *payload = nullptr, *key = nullptr, *ordering = nullptr;  // no payload: none at all
    size_t size = 0, first = 0, last = 0;  // bytes of the payload; its properties among those of the batch
    long long event_time = 0, due_time = 0, sequence = -1;
    Sent* context = nullptr;
    Ready() = default;
    Ready(Ready&& other) { *this = other, other.context = nullptr; }
    ~Ready() {
        if (context) context->results->leave(), delete context;
    }

   private:
    Ready& operator=(const Ready&) = default;
};
struct Batch {  // made and ended with the interpreter
    std::vector<PyObject*> kept;
    std::vector<std::pair<const char*, const char*>> properties;
    std::vector<Ready> messages;
    Batch() = default;
    Batch(const Batch&) = delete;
    void keep(PyObject* object) {
        kept.push_back(object);
        Py_INCREF(object);
    }
    void release() {
        for (PyObject* object : std::exchange(kept, {})) Py_DECREF(object);
    }
};

bool read_properties(PyObject* properties, Batch& batch) {
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(properties, &at, &name, &value)) {
        const char *name_text = whole_text(name), *text = name_text ? whole_text(value) : nullptr;
        if (!text) return false;
        batch.keep(name), batch.keep(value);  // the dictionary may lose them meanwhile
        batch.properties.emplace_back(name_text, text);
    }
    return true;
}

// Reads the fields of a message (from `first` on: payload, properties, key, ordering key, event time, due time); false: they cannot
// be set.
bool read_fields(PyObject* outgoing, Py_ssize_t first, Batch& batch, Ready& found) {
    if (!PyTuple_Check(outgoing) || PyTuple_GET_SIZE(outgoing) < first + 6) return false;
    auto field = [&](Py_ssize_t at) { return PyTuple_GET_ITEM(outgoing, first + at); };
    PyObject *payload = field(0), *properties = field(1), *due = field(5);
    found.key = whole_text(field(2)), found.ordering = whole_text(field(3));
    found.first = batch.properties.size();
    if (!found.key || !found.ordering || !PyDict_CheckExact(properties) || !is_time(field(4), found.event_time) ||
        (due != Py_None && !is_time(due, found.due_time)) || (payload != Py_None && !PyBytes_CheckExact(payload)) ||
        !read_properties(properties, batch))
        return false;
    found.last = batch.properties.size();
    if (payload != Py_None)
        found.payload = PyBytes_AS_STRING(payload), found.size = static_cast<size_t>(PyBytes_GET_SIZE(payload));
    batch.keep(outgoing);
    return true;
}

struct Built {  // a message of the library
    void* message = lib.message_create();
    Built() = default;
    Built(const Built&) = delete;
    ~Built() { lib.message_free(message); }
};

// Without the interpreter.
void send(void* producer, const Batch& batch, Ready& one, bool local) {
    Built built;
    for (size_t at = one.first; at < one.last; at++)
        lib.set_property(built.message, batch.properties[at].first, batch.properties[at].second);
    if (one.payload) lib.set_content(built.message, one.payload, one.size);
    else lib.set_null(built.message);
    if (*one.key) lib.set_key(built.message, one.key);
    if (*one.ordering) lib.set_ordering_key(built.message, one.ordering);
    if (one.event_time) lib.set_event_time(built.message, static_cast<uint64_t>(one.event_time));
    if (one.due_time) lib.set_deliver_at(built.message, static_cast<uint64_t>(one.due_time));
    if (one.sequence >= 0) lib.set_sequence_id(built.message, one.sequence);
    if (local) lib.disable_replication(built.message, 1);
    lib.send(producer, built.message, sent, std::exchange(one.context, nullptr));
}

// Reads the messages of a list of (ticket, message) up to the first one that is for pulsar-client, and keeps what they are made
// of; nullptr with an exception set. `numbered`: tickets are sequence ids, and messages begin with their payload, not with a topic.
Producer* read_messages(PyObject* self, PyObject* const* args, bool numbered, Batch& batch) {
    if (Py_TYPE(args[0]) != producer_type || !PyList_CheckExact(args[1])) {
        PyErr_Format(PyExc_TypeError, "a producer and a list of messages are needed");
        return nullptr;
    }
    Producer* producer = reinterpret_cast<Producer*>(args[0]);
    Results* results = reinterpret_cast<Sender*>(self)->results;
    batch.keep(args[0]);
    batch.messages.reserve(static_cast<size_t>(PyList_GET_SIZE(args[1])));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); i++) {
        PyObject* pair = PyList_GET_ITEM(args[1], i);
        long long ticket = -1;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !is_time(PyTuple_GET_ITEM(pair, 0), ticket)) break;
        Ready one;
        if (!read_fields(PyTuple_GET_ITEM(pair, 1), numbered ? 0 : 1, batch, one)) break;
        if (numbered) one.sequence = ticket;
        one.context = new Sent{results, producer->number, ticket};
        results->users++;
        batch.messages.push_back(std::move(one));
    }
    PyErr_Clear();  // of texts without UTF-8, of numbers that are too large
    return producer;
}

// Runs `work` with a batch of messages and their producer, and gives back what the batch keeps, whatever is thrown.
template <typename Work>
bool with_messages(PyObject* self, PyObject* const* args, bool numbered, Work work) {
    Batch batch;
    std::exception_ptr problem;
    bool fine = false;
    try {
        if (Producer* producer = read_messages(self, args, numbered, batch)) {
            fine = true;
            problem = released([&] { work(producer->producer, batch, args[2] == Py_True); });
        }
    } catch (const std::exception&) {
        problem = std::current_exception();
    }
    batch.release();
    rethrow(problem);
    return fine;
}

// publish(producer, [(ticket, Outgoing), ...], local) -> how many were sent: the next one is for pulsar-client
PyObject* sender_publish(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (!usable() || !arguments(count, 3)) return nullptr;
    size_t taken = 0;
    bool fine = with_messages(self, args, false, [&](void* producer, Batch& batch, bool local) {
        for (Ready& one : batch.messages) send(producer, batch, one, local), taken++;
    });
    return fine ? PyLong_FromSize_t(taken) : nullptr;
}

// publish_numbered(producer, [(sequence id, message), ...], local) -> (how many were tried, result of the last one)
// Stops behind a message that the library refuses at once, whose result comes here alone; 0: there was none.
PyObject* sender_publish_numbered(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (!usable() || !arguments(count, 3)) return nullptr;
    Py_ssize_t tried = 0;
    int refused = 0;
    bool fine = with_messages(self, args, true, [&](void* producer, Batch& batch, bool local) {
        for (size_t i = 0; i < batch.messages.size() && !refused; i++, tried++) {
            sending = batch.messages[i].context, refusal = 0;
            try {
                send(producer, batch, batch.messages[i], local);
            } catch (const std::exception&) {
                sending = nullptr;
                throw;
            }
            sending = nullptr, refused = refusal;
        }
    });
    return fine ? Py_BuildValue("ni", tried, refused) : nullptr;
}

// What became of the messages of one producer.
struct Ended {
    long long number;
    PyObject *stored, *others;
};

// Adds a result to those of its producer, with a token of the id, if there is one.
bool add_result(std::vector<Ended>& ended, Sent& one) {
    auto of = std::find_if(ended.begin(), ended.end(), [&](const Ended& each) { return each.number == one.number; });
    if (of == ended.end()) {
        of = ended.insert(ended.end(), {one.number, nullptr, nullptr});
        of->stored = PyList_New(0), of->others = PyList_New(0);
    }
    if (!of->stored || !of->others) return false;
    bool stored = !one.result && one.id && lib.id_ledger(one.id) >= 0;
    PyObject* token = !one.result && one.id ? new_token(std::exchange(one.id, nullptr)) : Py_NewRef(Py_None);
    if (!token) return false;
    PyObject* item = stored ? Py_BuildValue("LN", one.ticket, token) : Py_BuildValue("LiN", one.ticket, one.result, token);
    bool fine = item && !PyList_Append(stored ? of->stored : of->others, item);
    Py_XDECREF(item);
    return fine;
}

// receipts(wait_ms, gather_ms) -> [(number of a producer, [(ticket, token)] of what is stored, [(ticket, result, token or None)]
// of all else)]
PyObject* sender_receipts(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long times[2];
    if (!usable() || !arguments(count, 2) || !numbers(args, 0, 2, times)) return nullptr;
    std::chrono::milliseconds wait(times[0]), gather(times[1]);
    Results* results = reinterpret_cast<Sender*>(self)->results;
    Chain found;
    rethrow(released([&] {
        std::unique_lock<std::mutex> locked(results->lock);
        auto any = [&] { return results->woken || results->waiting.first; };
        if (results->some.wait_for(locked, wait, any) && gather.count() > 0) {
            locked.unlock();
            struct timespec pause = {static_cast<time_t>(times[1] / 1000), static_cast<long>(times[1] % 1000 * 1000000)};
            nanosleep(&pause, nullptr);
            locked.lock();
        }
        results->woken = false;
        found.swap(results->waiting);
    }));
    std::vector<Ended> ended;
    bool fine = true;
    try {
        for (Sent* one = found.first; fine && one; one = one->next) fine = add_result(ended, *one);
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory(), fine = false;
    }
    PyObject* list = fine ? PyList_New(0) : nullptr;
    for (Ended& one : ended) {
        PyObject* item = list ? Py_BuildValue("LOO", one.number, one.stored, one.others) : nullptr;
        if (!item || PyList_Append(list, item)) Py_CLEAR(list);
        Py_XDECREF(item);
        Py_XDECREF(one.stored);
        Py_XDECREF(one.others);
    }
    return list;
}

PyObject* sender_wake(PyObject* self, PyObject*) {
    Results* results = reinterpret_cast<Sender*>(self)->results;
    {
        std::lock_guard<std::mutex> locked(results->lock);
        results->woken = true;
        results->some.notify_all();
    }
    Py_RETURN_NONE;
}

// ---- acknowledgements with results, which gather where those of sends do

// The result of an acknowledgement: 0 if the broker has it. On threads of the library, or of who acknowledges.
void confirmed(int result, void* context) {
    Sent* one = static_cast<Sent*>(context);
    Results* results = one->results;
    one->result = result;
    results->add(one);
    results->leave();
}

// Acknowledgements on their way: their results that were not handed to the library are dropped.
struct Acknowledgements {
    std::vector<std::pair<void*, Sent*>> ready;
    ~Acknowledgements() {
        for (auto& [id, one] : ready)
            if (one) one->results->leave(), delete one;
    }
};

// acknowledge_with([token, ...], [ticket, ...], sender, number of the results) -> places of tokens that are none of ours, for
// pulsar-client
PyObject* reader_acknowledge_with(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long number;
    if (!usable() || !arguments(count, 4) || !numbers(args, 3, 1, &number)) return nullptr;
    if (Py_TYPE(args[2]) != sender_type) return PyErr_Format(PyExc_TypeError, "a sender is needed");
    Reference tokens(PySequence_Tuple(args[0])), tickets(tokens.get() ? PySequence_Tuple(args[1]) : nullptr);
    if (!tickets.get()) return nullptr;
    Py_ssize_t size = PyTuple_GET_SIZE(tokens.get());
    if (PyTuple_GET_SIZE(tickets.get()) != size) return PyErr_Format(PyExc_ValueError, "a ticket for each token is needed");
    Reference left(PyList_New(0));
    if (!left.get()) return nullptr;
    Results* results = reinterpret_cast<Sender*>(args[2])->results;
    Acknowledgements all;
    all.ready.reserve(static_cast<size_t>(size));
    for (Py_ssize_t i = 0; i < size; i++) {
        PyObject* token = PyTuple_GET_ITEM(tokens.get(), i);
        if (Py_TYPE(token) == token_type) {
            long long ticket = PyLong_AsLongLong(PyTuple_GET_ITEM(tickets.get(), i));
            if (ticket == -1 && PyErr_Occurred()) return nullptr;
            all.ready.emplace_back(id_of(token), new Sent{results, number, ticket});
            results->users++;
        } else {
            Reference place(PyLong_FromSsize_t(i));
            if (!place.get() || PyList_Append(left.get(), place.get())) return nullptr;
        }
    }
    void* consumer = reinterpret_cast<Reader*>(self)->consumer;
    PyObject *kept = tokens.release(), *others = left.release();
    Py_DECREF(tickets.release());
    Py_INCREF(self);  // keeps the consumer
    std::exception_ptr problem = released([&] {
        for (auto& [id, one] : all.ready) lib.acknowledge(consumer, id, confirmed, std::exchange(one, nullptr));
    });
    Py_DECREF(self);
    Py_DECREF(kept);
    if (problem) Py_DECREF(others);
    rethrow(problem);
    return others;
}

// ---- ConnectionWatch: a thread that waits, without the interpreter, until a consumer is not connected

constexpr long kLook = 50;  // ms between two looks: an unload shows as a disconnection of about 90 ms

struct Bell {
    std::mutex lock;
    std::condition_variable some;
    bool woken = false;
};
struct ConnectionWatch {
    PyObject_HEAD Bell* bell;
};

PyObject* watch_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (!self) return nullptr;
    Bell*& bell = reinterpret_cast<ConnectionWatch*>(self)->bell;
    if ((bell = new (std::nothrow) Bell)) return self;
    Py_DECREF(self);
    return PyErr_NoMemory();
}

void watch_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    delete reinterpret_cast<ConnectionWatch*>(self)->bell;
    type->tp_free(self);
    Py_DECREF(type);
}

// wait(readers, wait_ms): until one of them is not connected, `wake`, or the time is over
PyObject* watch_wait(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    long long wait;
    if (!usable() || !arguments(count, 2) || !numbers(args, 1, 1, &wait)) return nullptr;
    if (wait < 0 || wait > 60000) return PyErr_Format(PyExc_ValueError, "0 to 60000 ms");
    PyObject* readers = PySequence_Tuple(args[0]);  // keeps them, and so the consumers
    if (!readers) return nullptr;
    Py_ssize_t size = PyTuple_GET_SIZE(readers);
    for (Py_ssize_t i = 0; i < size; i++)
        if (!Py_IS_TYPE(PyTuple_GET_ITEM(readers, i), reader_type)) {
            Py_DECREF(readers);
            return PyErr_Format(PyExc_TypeError, "readers are needed");
        }
    auto lost = [&] {
        for (Py_ssize_t i = 0; i < size; i++)
            if (!lib.is_connected(reinterpret_cast<Reader*>(PyTuple_GET_ITEM(readers, i))->consumer)) return true;
        return false;
    };
    Bell* bell = reinterpret_cast<ConnectionWatch*>(self)->bell;
    Py_INCREF(self);  // keeps the bell
    std::exception_ptr problem = released([&] {
        auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait);
        for (bool over = false; !over;) {  // looks only after a wait, so that whoever calls again at once does not spin
            std::unique_lock<std::mutex> locked(bell->lock);
            auto next = std::min(end, std::chrono::steady_clock::now() + std::chrono::milliseconds(kLook));
            over = bell->some.wait_until(locked, next, [&] { return bell->woken; }) || next == end;
            bell->woken = false;
            locked.unlock();
            over = over || lost();
        }
    });
    Py_DECREF(self);
    Py_DECREF(readers);
    rethrow(problem);
    Py_RETURN_NONE;
}

PyObject* watch_wake(PyObject* self, PyObject*) {
    Bell* bell = reinterpret_cast<ConnectionWatch*>(self)->bell;
    std::lock_guard<std::mutex> locked(bell->lock);
    bell->woken = true;
    bell->some.notify_all();
    Py_RETURN_NONE;
}

// ---- the module

// load(path of libpulsar, Delivery or None, _pulsar.Message, result that says time-out). Without Delivery only batches can be
// read. Raises ImportError with what is missing.
PyObject* module_load(PyObject*, PyObject* args) {
    const char* path;
    PyObject *delivery, *message;
    int timeout;
    if (!PyArg_ParseTuple(args, "sOOi", &path, &delivery, &message, &timeout)) return nullptr;
    PyTypeObject* type = PyType_Check(delivery) ? reinterpret_cast<PyTypeObject*>(delivery) : nullptr;
    if (delivery != Py_None && !type) return PyErr_Format(PyExc_ImportError, "a type is needed");
    if (type && !plain_tuple(type))
        return PyErr_Format(PyExc_ImportError, "%s is no plain tuple", type->tp_name);
    void* handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!handle) return PyErr_Format(PyExc_ImportError, "%s is not loaded", path);
    std::string missing;
    Library found;
#define FIND(NAME, SYMBOL, TYPE)                                                                                       \
    found.NAME = reinterpret_cast<TYPE>(dlsym(handle, SYMBOL));                                                        \
    if (!found.NAME) missing += std::string(missing.empty() ? "" : ", ") + SYMBOL;
    FUNCTIONS(FIND)
#undef FIND
    if (!missing.empty()) return PyErr_Format(PyExc_ImportError, "%s has no %s", path, missing.c_str());
    void* probe = found.message_create();
    size_t size = malloc_usable_size(probe);
    found.message_free(probe);
    if (size < kMessageOffset + kMessageSize) return PyErr_Format(PyExc_ImportError, "a message has %zu bytes", size);
    lib = found;
    if (type) Py_XSETREF(delivery_type, reinterpret_cast<PyTypeObject*>(Py_NewRef(delivery)));
    Py_XSETREF(message_type, Py_NewRef(message));
    result_timeout = timeout;
    Py_RETURN_NONE;
}

template <auto function>
PyCFunction method() {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Guarded<function>::call));
}

PyMethodDef token_methods[] = {{"ledger_id", token_ledger, METH_NOARGS, nullptr},
                               {"entry_id", token_entry, METH_NOARGS, nullptr},
                               {"partition", token_partition, METH_NOARGS, nullptr},
                               {"batch_index", token_batch, METH_NOARGS, nullptr},
                               {"serialize", method<token_serialize>(), METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef reader_methods[] = {{"read", method<reader_read>(), METH_FASTCALL, nullptr},
                                {"acknowledge", method<reader_acknowledge>(), METH_O, nullptr},
                                {"acknowledge_with", method<reader_acknowledge_with>(), METH_FASTCALL, nullptr},
                                {"failures", reader_failures, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef message_reader_methods[] = {{"read", method<message_reader_read>(), METH_FASTCALL, nullptr},
                                        {nullptr, nullptr, 0, nullptr}};
PyMethodDef sender_methods[] = {{"publish", method<sender_publish>(), METH_FASTCALL, nullptr},
                                {"publish_numbered", method<sender_publish_numbered>(), METH_FASTCALL, nullptr},
                                {"receipts", method<sender_receipts>(), METH_FASTCALL, nullptr},
                                {"wake", sender_wake, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef watch_methods[] = {{"wait", method<watch_wait>(), METH_FASTCALL, nullptr},
                               {"wake", watch_wake, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef module_methods[] = {{"load", method<module_load>(), METH_VARARGS, nullptr},
                                {"delivery", method<module_delivery>(), METH_VARARGS, nullptr},
                                {"position", module_position, METH_O, nullptr},
                                {"columns", method<module_columns>(), METH_VARARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};

template <typename T>
void* slot(T function) {
    return reinterpret_cast<void*>(function);
}

PyTypeObject* add_type(PyObject* module, const char* name, int size, std::vector<PyType_Slot> slots, unsigned flags) {
    slots.push_back({0, nullptr});
    PyType_Spec spec = {name, size, 0, Py_TPFLAGS_DEFAULT | flags, slots.data()};
    PyTypeObject* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
    if (type && PyModule_AddType(module, type)) Py_CLEAR(type);
    return type;
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kodo_fast._native", nullptr, -1, module_methods,
                          nullptr, nullptr, nullptr, nullptr};

}  // namespace

static PyObject* make_module() {
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    token_type = add_type(module, "kodo_fast._native.Token", sizeof(Token),
                          {{Py_tp_dealloc, slot(token_dealloc)}, {Py_tp_str, slot(token_str)},
                           {Py_tp_repr, slot(token_str)}, {Py_tp_methods, token_methods}},
                          Py_TPFLAGS_DISALLOW_INSTANTIATION);
    reader_type = add_type(module, "kodo_fast._native.Reader", sizeof(Reader),
                           {{Py_tp_new, slot(Guarded<reader_new>::call)}, {Py_tp_dealloc, slot(reader_dealloc)},
                            {Py_tp_methods, reader_methods}}, 0);
    PyTypeObject* messages = add_type(module, "kodo_fast._native.MessageReader", sizeof(MessageReader),
                                      {{Py_tp_new, slot(Guarded<message_reader_new>::call)},
                                       {Py_tp_dealloc, slot(message_reader_dealloc)},
                                       {Py_tp_methods, message_reader_methods}}, 0);
    producer_type = add_type(module, "kodo_fast._native.Producer", sizeof(Producer),
                             {{Py_tp_new, slot(Guarded<producer_new>::call)}, {Py_tp_dealloc, slot(producer_dealloc)}}, 0);
    sender_type = add_type(module, "kodo_fast._native.Sender", sizeof(Sender),
                           {{Py_tp_new, slot(Guarded<sender_new>::call)}, {Py_tp_dealloc, slot(sender_dealloc)},
                            {Py_tp_methods, sender_methods}}, 0);
    buffer_type = add_type(module, "kodo_fast._native.Buffer", sizeof(Buffer),
                           {{Py_tp_dealloc, slot(buffer_dealloc)}, {Py_bf_getbuffer, slot(buffer_get)}},
                           Py_TPFLAGS_DISALLOW_INSTANTIATION);
    PyTypeObject* batches = add_type(module, "kodo_fast._native.BatchReader", sizeof(BatchReader),
                                     {{Py_tp_new, slot(Guarded<batch_reader_new>::call)}, {Py_tp_dealloc, slot(batch_reader_dealloc)},
                                      {Py_tp_methods, batch_reader_methods}}, 0);
    PyTypeObject* watch = add_type(module, "kodo_fast._native.ConnectionWatch", sizeof(ConnectionWatch),
                                   {{Py_tp_new, slot(Guarded<watch_new>::call)}, {Py_tp_dealloc, slot(watch_dealloc)},
                                    {Py_tp_methods, watch_methods}}, 0);
    empty_text = PyUnicode_InternFromString("");
    if (!buffer_type || !batches || !token_type || !reader_type || !messages || !producer_type || !sender_type || !watch || !empty_text ||
        pthread_atfork(nullptr, nullptr, [] { forked = true; })) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}

PyMODINIT_FUNC PyInit__native() { return Guarded<make_module>::call(); }
