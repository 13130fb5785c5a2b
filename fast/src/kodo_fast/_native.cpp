// The border to Pulsar's client library in bundles: read, acknowledge, publish, receipts.
//
// Nothing is linked and no header of the library is used: its functions are found, at import, in the very libpulsar that
// pulsar-client's wheel brings and has loaded. Clients, consumers and producers stay pulsar-client's own; their C++ objects
// are reached by pybind11's conduit protocol, which also refuses another C++ standard library.
//
// Rules: no call into the library while this thread has the interpreter, but for getters and frees; no Python on threads of
// the library; no `noexcept` and no `catch (...)` around a place that takes the interpreter back, because Python ends threads
// there by unwinding them when it ends itself.
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
    std::string bytes;
    PyObject* text = nullptr;
};
Name names[256];

PyObject* name_of(const std::string& bytes) {
    if (bytes.empty() || bytes.size() > 64) return text_of(bytes);
    unsigned hash = static_cast<unsigned>(bytes.size());
    for (unsigned char one : bytes) hash = hash * 33 + one;
    Name& name = names[(hash ^ (hash >> 8)) % 256];
    if (name.text && name.bytes == bytes) return Py_NewRef(name.text);
    PyObject* text = text_of(bytes);
    if (text) {
        PyObject* old = std::exchange(name.text, Py_NewRef(text));
        name.bytes = bytes;
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

// A Delivery, whose token has the id then; nullptr with an exception set, UnicodeDecodeError for what is no text.
PyObject* delivery_of(Received& one, PyObject* entry) {
    if (!delivery_type) return PyErr_Format(PyExc_RuntimeError, "kodo_fast is not loaded for deliveries");
    PyObject* made = delivery_type->tp_alloc(delivery_type, 11);
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
PyObject* deliveries_of(std::vector<Received>& received, int result) {
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
        PyObject* made = one.encrypted ? nullptr : delivery_of(one, entry);
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

PyObject* reader_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject* owner;
    if (!usable() || !PyArg_ParseTuple(args, "O", &owner)) return nullptr;
    void* consumer = pointer_of<pulsar::Consumer>(owner);
    if (!consumer || !same_object(owner, {{"topic", lib.consumer_topic(consumer)}, {"subscription_name", lib.subscription(consumer)}}))
        return nullptr;
    Reader* reader = reinterpret_cast<Reader*>(type->tp_alloc(type, 0));
    if (!reader) return nullptr;
    reader->owner = Py_NewRef(owner), reader->consumer = consumer, reader->failures = new Failures;
    return reinterpret_cast<PyObject*>(reader);
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
    Py_INCREF(self);
    int result = 0;
    Py_BEGIN_ALLOW_THREADS
    long long bytes = received.empty() ? 0 : lib.length(received[0].message);
    while (static_cast<long long>(received.size()) < most && bytes < most_bytes) {
        void* message = nullptr;
        result = lib.receive(consumer, &message, received.empty() ? static_cast<int>(wait) : 0);
        if (result) break;
        received.emplace_back(message);
        bytes += lib.length(message);
    }
    Py_END_ALLOW_THREADS
    Py_DECREF(self);
    return deliveries_of(received, result == result_timeout ? 0 : result);
}

void acknowledged(int result, void* context) {
    Failures* failures = static_cast<Failures*>(context);
    if (result) failures->count++;
    failures->leave();
}

// acknowledge([token, ...]) -> tokens that are none of ours, for pulsar-client
PyObject* reader_acknowledge(PyObject* self, PyObject* tokens) {
    if (!usable()) return nullptr;
    PyObject* all = PySequence_Tuple(tokens);  // keeps the tokens
    PyObject* others = all ? PyList_New(0) : nullptr;
    if (!others) {
        Py_XDECREF(all);
        return nullptr;
    }
    std::vector<void*> ids;
    ids.reserve(static_cast<size_t>(PyTuple_GET_SIZE(all)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all); i++) {
        PyObject* token = PyTuple_GET_ITEM(all, i);
        if (Py_TYPE(token) == token_type) ids.push_back(id_of(token));
        else if (PyList_Append(others, token)) {
            Py_DECREF(all);
            Py_DECREF(others);
            return nullptr;
        }
    }
    Reader* reader = reinterpret_cast<Reader*>(self);
    Py_INCREF(self);
    Py_BEGIN_ALLOW_THREADS
    for (void* id : ids) {
        reader->failures->users++;
        lib.acknowledge(reader->consumer, id, acknowledged, reader->failures);
    }
    Py_END_ALLOW_THREADS
    Py_DECREF(self);
    Py_DECREF(all);
    return others;
}

PyObject* reader_failures(PyObject* self, PyObject*) {
    return PyLong_FromLong(reinterpret_cast<Reader*>(self)->failures->count.exchange(0));
}

// delivery(message) -> Delivery, or None for one that pulsar-client has to read, which is as it was. For the self-test.
PyObject* module_delivery(PyObject*, PyObject* source) {
    if (!usable()) return nullptr;
    std::vector<Received> received;
    received.reserve(1);
    if (!take_message(source, received)) return nullptr;
    PyObject* entry = entry_of(received[0]);
    PyObject* made = entry ? delivery_of(received[0], entry) : nullptr;
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

struct Result {
    long long number, ticket;
    int result;
    void* id;
};
struct Results {
    std::mutex lock;
    std::condition_variable some;
    std::vector<Result> waiting;
    bool woken = false;
    std::atomic<long> users{1};
    void leave() {
        if (users.fetch_sub(1) != 1) return;
        for (Result& one : waiting)
            if (one.id) lib.id_free(one.id);
        delete this;
    }
};
struct Sent {  // one message on its way
    Results* results;
    long long number, ticket;
};
struct Producer {
    PyObject_HEAD PyObject* owner;  // keeps the producer
    void* producer;
    long long number;
};
struct Sender {
    PyObject_HEAD Results* results;
};
PyTypeObject* producer_type = nullptr;

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
    if (sender) sender->results = new Results;
    return reinterpret_cast<PyObject*>(sender);
}

void sender_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    if (Results* results = reinterpret_cast<Sender*>(self)->results) results->leave();
    type->tp_free(self);
    Py_DECREF(type);
}

void sent(int result, void* id, void* context) {
    Sent* one = static_cast<Sent*>(context);
    {
        std::lock_guard<std::mutex> locked(one->results->lock);
        one->results->waiting.push_back({one->number, one->ticket, result, id});
        if (one->results->waiting.size() == 1) one->results->some.notify_one();
    }
    one->results->leave();
    delete one;
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

// A message to publish, as far as Python has to say: the rest is done without the interpreter. Texts and payload are those of
// Python's objects, which a Batch keeps.
struct Outgoing {
    const char *payload = nullptr, *key = nullptr, *ordering = nullptr;  // no payload: none at all
    size_t size = 0, first = 0, last = 0;  // bytes of the payload; its properties among those of the batch
    long long event_time = 0, due_time = 0;
    Sent* context = nullptr;
};
struct Batch {
    std::vector<PyObject*> kept;
    std::vector<std::pair<const char*, const char*>> properties;
    std::vector<Outgoing> messages;
    void keep(PyObject* object) { kept.push_back(Py_NewRef(object)); }
    void release() {
        for (PyObject* object : kept) Py_DECREF(object);
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

// Reads the fields of an Outgoing (topic, payload, properties, key, ordering key, event time, due time); false: they cannot be set.
bool read_fields(PyObject* outgoing, Batch& batch, Outgoing& found) {
    if (!PyTuple_Check(outgoing) || PyTuple_GET_SIZE(outgoing) < 7) return false;
    PyObject *payload = PyTuple_GET_ITEM(outgoing, 1), *properties = PyTuple_GET_ITEM(outgoing, 2);
    PyObject* due = PyTuple_GET_ITEM(outgoing, 6);
    found.key = whole_text(PyTuple_GET_ITEM(outgoing, 3)), found.ordering = whole_text(PyTuple_GET_ITEM(outgoing, 4));
    found.first = batch.properties.size();
    if (!found.key || !found.ordering || !PyDict_CheckExact(properties) ||
        !is_time(PyTuple_GET_ITEM(outgoing, 5), found.event_time) || (due != Py_None && !is_time(due, found.due_time)) ||
        (payload != Py_None && !PyBytes_CheckExact(payload)) || !read_properties(properties, batch))
        return false;
    found.last = batch.properties.size();
    if (payload != Py_None)
        found.payload = PyBytes_AS_STRING(payload), found.size = static_cast<size_t>(PyBytes_GET_SIZE(payload));
    batch.keep(outgoing);
    return true;
}

void send(void* producer, const Batch& batch, const Outgoing& one, bool local) {
    void* message = lib.message_create();
    for (size_t at = one.first; at < one.last; at++)
        lib.set_property(message, batch.properties[at].first, batch.properties[at].second);
    if (one.payload) lib.set_content(message, one.payload, one.size);
    else lib.set_null(message);
    if (*one.key) lib.set_key(message, one.key);
    if (*one.ordering) lib.set_ordering_key(message, one.ordering);
    if (one.event_time) lib.set_event_time(message, static_cast<uint64_t>(one.event_time));
    if (one.due_time) lib.set_deliver_at(message, static_cast<uint64_t>(one.due_time));
    if (local) lib.disable_replication(message, 1);
    lib.send(producer, message, sent, one.context);
    lib.message_free(message);
}

// publish(producer, [(ticket, Outgoing), ...], local) -> how many were sent: the next one is for pulsar-client
PyObject* sender_publish(PyObject* self, PyObject* const* args, Py_ssize_t count) {
    if (!usable() || !arguments(count, 3)) return nullptr;
    if (Py_TYPE(args[0]) != producer_type || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "a producer and a list of messages are needed");
    Producer* producer = reinterpret_cast<Producer*>(args[0]);
    Results* results = reinterpret_cast<Sender*>(self)->results;
    bool local = args[2] == Py_True;
    Batch batch;
    batch.keep(args[0]);
    batch.messages.reserve(static_cast<size_t>(PyList_GET_SIZE(args[1])));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[1]); i++) {
        PyObject* pair = PyList_GET_ITEM(args[1], i);
        long long ticket = -1;
        if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2 || !is_time(PyTuple_GET_ITEM(pair, 0), ticket)) break;
        Outgoing one;
        if (!read_fields(PyTuple_GET_ITEM(pair, 1), batch, one)) break;
        results->users++;
        one.context = new Sent{results, producer->number, ticket};
        batch.messages.push_back(one);
    }
    PyErr_Clear();  // of texts without UTF-8, of numbers that are too large
    Py_BEGIN_ALLOW_THREADS
    for (const Outgoing& one : batch.messages) send(producer->producer, batch, one, local);
    Py_END_ALLOW_THREADS
    batch.release();
    return PyLong_FromSize_t(batch.messages.size());
}

// What became of the messages of one producer.
struct Ended {
    long long number;
    PyObject *stored, *others;
};

// Adds a result to those of its producer, with a token of the id, if there is one.
bool add_result(std::vector<Ended>& ended, Result& one) {
    auto of = std::find_if(ended.begin(), ended.end(), [&](const Ended& each) { return each.number == one.number; });
    if (of == ended.end()) of = ended.insert(ended.end(), {one.number, PyList_New(0), PyList_New(0)});
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
    std::vector<Result> found;
    Py_INCREF(self);
    Py_BEGIN_ALLOW_THREADS
    {
        std::unique_lock<std::mutex> locked(results->lock);
        auto any = [&] { return results->woken || !results->waiting.empty(); };
        if (results->some.wait_for(locked, wait, any) && gather.count() > 0) {
            locked.unlock();
            struct timespec pause = {static_cast<time_t>(times[1] / 1000), static_cast<long>(times[1] % 1000 * 1000000)};
            nanosleep(&pause, nullptr);
            locked.lock();
        }
        results->woken = false;
        found.swap(results->waiting);
    }
    Py_END_ALLOW_THREADS
    Py_DECREF(self);
    std::vector<Ended> ended;
    bool fine = true;
    for (Result& one : found) {
        fine = fine && add_result(ended, one);
        if (one.id) lib.id_free(one.id);
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
    if (type && (!PyType_IsSubtype(type, &PyTuple_Type) || type->tp_basicsize != PyTuple_Type.tp_basicsize))
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

PyCFunction fast_method(PyObject* (*method)(PyObject*, PyObject* const*, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method));
}

PyMethodDef token_methods[] = {{"ledger_id", token_ledger, METH_NOARGS, nullptr},
                               {"entry_id", token_entry, METH_NOARGS, nullptr},
                               {"partition", token_partition, METH_NOARGS, nullptr},
                               {"batch_index", token_batch, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyMethodDef reader_methods[] = {{"read", fast_method(reader_read), METH_FASTCALL, nullptr},
                                {"acknowledge", reader_acknowledge, METH_O, nullptr},
                                {"failures", reader_failures, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef sender_methods[] = {{"publish", fast_method(sender_publish), METH_FASTCALL, nullptr},
                                {"receipts", fast_method(sender_receipts), METH_FASTCALL, nullptr},
                                {"wake", sender_wake, METH_NOARGS, nullptr},
                                {nullptr, nullptr, 0, nullptr}};
PyMethodDef module_methods[] = {{"load", module_load, METH_VARARGS, nullptr},
                                {"delivery", module_delivery, METH_O, nullptr},
                                {"position", module_position, METH_O, nullptr},
                               {"columns", module_columns, METH_VARARGS, nullptr},
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

PyMODINIT_FUNC PyInit__native() {
    PyObject* module = PyModule_Create(&definition);
    if (!module) return nullptr;
    token_type = add_type(module, "kodo_fast._native.Token", sizeof(Token),
                          {{Py_tp_dealloc, slot(token_dealloc)}, {Py_tp_str, slot(token_str)},
                           {Py_tp_repr, slot(token_str)}, {Py_tp_methods, token_methods}},
                          Py_TPFLAGS_DISALLOW_INSTANTIATION);
    PyTypeObject* reader = add_type(module, "kodo_fast._native.Reader", sizeof(Reader),
                                    {{Py_tp_new, slot(reader_new)}, {Py_tp_dealloc, slot(reader_dealloc)},
                                     {Py_tp_methods, reader_methods}}, 0);
    producer_type = add_type(module, "kodo_fast._native.Producer", sizeof(Producer),
                             {{Py_tp_new, slot(producer_new)}, {Py_tp_dealloc, slot(producer_dealloc)}}, 0);
    PyTypeObject* sender = add_type(module, "kodo_fast._native.Sender", sizeof(Sender),
                                    {{Py_tp_new, slot(sender_new)}, {Py_tp_dealloc, slot(sender_dealloc)},
                                     {Py_tp_methods, sender_methods}}, 0);
    buffer_type = add_type(module, "kodo_fast._native.Buffer", sizeof(Buffer),
                           {{Py_tp_dealloc, slot(buffer_dealloc)}, {Py_bf_getbuffer, slot(buffer_get)}},
                           Py_TPFLAGS_DISALLOW_INSTANTIATION);
    PyTypeObject* batches = add_type(module, "kodo_fast._native.BatchReader", sizeof(BatchReader),
                                     {{Py_tp_new, slot(batch_reader_new)}, {Py_tp_dealloc, slot(batch_reader_dealloc)},
                                      {Py_tp_methods, batch_reader_methods}}, 0);
    empty_text = PyUnicode_InternFromString("");
    if (!buffer_type || !batches || !token_type || !reader || !producer_type || !sender || !empty_text ||
        pthread_atfork(nullptr, nullptr, [] { forked = true; })) {
        Py_DECREF(module);
        return nullptr;
    }
    return module;
}
