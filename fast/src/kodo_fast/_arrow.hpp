// Stored messages as columns in Arrow's layout, for whoever reads many: filled while no interpreter is needed, and handed out as
// buffers, of which the caller makes arrays without a copy. What only pulsar-client's binding reads (encrypted messages, texts
// that are not UTF-8) a function of the caller's decodes, in its turn.
#pragma once
#include <memory>

#include "_library.hpp"

namespace {

// ---- Buffer: memory that Python takes over

struct Buffer {
    PyObject_HEAD void* memory;
    Py_ssize_t size;
};
PyTypeObject* buffer_type = nullptr;

int buffer_get(PyObject* self, Py_buffer* view, int flags) {
    Buffer* buffer = reinterpret_cast<Buffer*>(self);
    static char nothing[8];
    return PyBuffer_FillInfo(view, self, buffer->memory ? buffer->memory : nothing, buffer->size, 1, flags);
}

void buffer_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    std::free(reinterpret_cast<Buffer*>(self)->memory);
    PyObject_Free(self);
    Py_DECREF(type);
}

// Memory that grows; `add` and `push` throw std::bad_alloc.
class Growing {
   public:
    Growing() = default;
    Growing(const Growing&) = delete;
    Growing& operator=(const Growing&) = delete;
    ~Growing() { std::free(memory_); }

    void add(const void* from, size_t count) {
        if (!count) return;
        std::memcpy(more(count), from, count);
    }
    template <typename T>
    void push(T value) {
        std::memcpy(more(sizeof(T)), &value, sizeof(T));
    }
    template <typename T>
    void set(size_t index, T value) {
        std::memcpy(memory_ + index * sizeof(T), &value, sizeof(T));
    }
    size_t size() const { return size_; }
    char* begin() { return memory_; }

    // A Buffer that has it from now on, as large as it is; this is empty then. nullptr with an exception set.
    PyObject* hand_out() {
        Buffer* buffer = PyObject_New(Buffer, buffer_type);
        if (!buffer) return nullptr;
        buffer->size = static_cast<Py_ssize_t>(size_);
        buffer->memory = std::exchange(memory_, nullptr);
        usual_ = size_, size_ = room_ = 0;
        return reinterpret_cast<PyObject*>(buffer);
    }

   private:
    char* memory_ = nullptr;
    size_t size_ = 0, room_ = 0, usual_ = 0;  // usual: as large as it was when it was last handed out

    char* more(size_t count) {
        if (room_ - size_ < count) {
            size_t room = std::max({size_ + count, room_ * 2, usual_ + usual_ / 8, size_t{64}});
            char* found = static_cast<char*>(std::realloc(memory_, room));
            if (!found) throw std::bad_alloc();
            memory_ = found, room_ = room;
        }
        return memory_ + std::exchange(size_, size_ + count);
    }
};

// Which rows have a value: a bit for each, the first in the lowest.
class Validity {
   public:
    void push(bool valid) {
        if (rows_ % 8 == 0) bits_.push<uint8_t>(0);
        if (valid) bits_.begin()[rows_ / 8] |= static_cast<char>(1 << rows_ % 8);
        else nulls_++;
        rows_++;
    }
    int64_t nulls() const { return nulls_; }
    // A Buffer; None where every row has a value.
    PyObject* hand_out() {
        PyObject* found = bits_.hand_out();
        rows_ = 0;
        if (found && !std::exchange(nulls_, 0)) Py_SETREF(found, Py_NewRef(Py_None));
        return found;
    }

   private:
    Growing bits_;
    int64_t rows_ = 0, nulls_ = 0;
};

// Values of no fixed length: where each ends, and all of them in a row.
struct Values {
    Growing offsets, data;

    void begin() {
        if (!offsets.size()) offsets.push<int32_t>(0);
    }
    void push(const void* from, size_t count) {
        begin();
        data.add(from, count);
        offsets.push(static_cast<int32_t>(data.size()));
    }
    void push(const std::string& text) { push(text.data(), text.size()); }
    bool has_room(size_t count) const { return data.size() + count <= INT32_MAX; }
    bool hand_out(PyObject*& to_offsets, PyObject*& to_data) {
        return (to_offsets = offsets.hand_out()) && (to_data = data.hand_out());
    }
};

// ---- UTF-8, as Python takes it: no surrogates, nothing beyond U+10FFFF, every character in its shortest form

bool is_utf8(const std::string& text) {
    auto at = reinterpret_cast<const unsigned char*>(text.data()), end = at + text.size();
    auto follows = [&](ptrdiff_t count, unsigned char least, unsigned char most) {
        if (end - at <= count || at[1] < least || at[1] > most) return false;
        for (ptrdiff_t i = 2; i <= count; i++)
            if ((at[i] & 0xC0) != 0x80) return false;
        at += count + 1;
        return true;
    };
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (std::memcpy(&eight, at, 8), !(eight & 0x8080808080808080u))) at += 8;
        else if (*at < 0x80) at++;
        else if (*at >= 0xC2 && *at <= 0xDF) { if (!follows(1, 0x80, 0xBF)) return false; }
        else if (*at >= 0xE0 && *at <= 0xEF) { if (!follows(2, *at == 0xE0 ? 0xA0 : 0x80, *at == 0xED ? 0x9F : 0xBF)) return false; }
        else if (*at >= 0xF0 && *at <= 0xF4) { if (!follows(3, *at == 0xF0 ? 0x90 : 0x80, *at == 0xF4 ? 0x8F : 0xBF)) return false; }
        else return false;
    }
    return true;
}

// ---- a stored message, and the rows that are made of some

using Stored = std::shared_ptr<void>;  // as pulsar::Message is one

struct Position {
    int64_t ledger, entry;
    bool operator==(const Position& other) const { return ledger == other.ledger && entry == other.entry; }
    bool operator>(const Position& other) const {
        return ledger != other.ledger ? ledger > other.ledger : entry > other.entry;
    }
};

// Consecutive entries of one ledger, when the first and the last of them were published, and the id of the first message.
struct Run {
    int64_t ledger, first, last;
    uint64_t published, last_published;
    std::string id;
};

struct Row {
    const Texts* properties;
    const std::string* key;
    const void* payload;
    size_t size;
    bool null;
    uint64_t published, happened;
    Position position;
    int32_t index;
};

class Rows {
   public:
    // `latest`: the last moment a row can have, ms; publish times beyond it are it, event times none.
    Rows(bool payload, uint64_t latest) : payload_(payload), latest_(latest) {}

    int64_t count() const { return count_; }

    template <typename Pairs>
    bool has_room(const Row& row, const Pairs& properties) const {
        size_t texts = 0;
        for (const auto& [name, value] : properties) texts += name.size() + value.size();
        return payloads_.has_room(row.size) && names_.has_room(texts) && values_.has_room(texts) &&
               keys_.has_room(row.key->size()) && names_.offsets.size() / 4 + properties.size() < INT32_MAX;
    }

    template <typename Pairs>
    void add(const Row& row, const Pairs& properties, const std::string* broken = nullptr) {
        ledgers_.push(row.position.ledger), entries_.push(row.position.entry), indexes_.push(row.index);
        published_.push(static_cast<int64_t>(std::min(row.published, latest_)) * 1000);
        bool happened = row.happened > 0 && row.happened <= latest_;
        has_happened_.push(happened);
        happened_.push(happened ? static_cast<int64_t>(row.happened) * 1000 : int64_t{0});
        has_key_.push(!row.key->empty());
        keys_.push(*row.key);
        if (!maps_.size()) maps_.push<int32_t>(0);
        for (const auto& [name, value] : properties) names_.push(name), values_.push(value);
        pairs_ += static_cast<int32_t>(properties.size());
        maps_.push(pairs_);
        if (payload_) {
            has_payload_.push(!row.null);
            payloads_.push(row.payload, row.size);
        }
        for (int64_t missing = broken ? broken_ : count_; missing < count_; missing++) add_broken(nullptr);
        if (broken) add_broken(broken);
        count_++;
    }

    // A tuple of buffers, None for each that nobody needs; kodo_fast.Columns names them.
    PyObject* hand_out() {
        while (broken_ && broken_ < count_) add_broken(nullptr);
        if (!maps_.size()) maps_.push<int32_t>(0);
        for (Values* each : {&keys_, &names_, &values_, &payloads_, &brokens_}) each->begin();
        PyObject* all[20] = {};  // nothing throws from here on
        bool with_broken = broken_;
        bool fine = (all[0] = ledgers_.hand_out()) && (all[1] = entries_.hand_out()) && (all[2] = indexes_.hand_out()) &&
                    (all[3] = published_.hand_out()) && (all[4] = has_happened_.hand_out()) &&
                    (all[5] = happened_.hand_out()) && (all[6] = has_key_.hand_out()) && keys_.hand_out(all[7], all[8]) &&
                    (all[9] = maps_.hand_out()) &&
                    names_.hand_out(all[10], all[11]) && values_.hand_out(all[12], all[13]);
        if (fine && with_broken) fine = (all[14] = has_broken_.hand_out()) && brokens_.hand_out(all[15], all[16]);
        if (fine && payload_) fine = (all[17] = has_payload_.hand_out()) && payloads_.hand_out(all[18], all[19]);
        count_ = broken_ = pairs_ = 0;
        PyObject* found = fine ? PyTuple_New(20) : nullptr;
        for (Py_ssize_t i = 0; i < 20; i++) {
            if (found) PyTuple_SET_ITEM(found, i, all[i] ? all[i] : Py_NewRef(Py_None));
            else Py_XDECREF(all[i]);
        }
        return found;
    }

   private:
    bool payload_;
    uint64_t latest_;
    int64_t count_ = 0, broken_ = 0;  // broken: rows that the column has, none as long as it is not needed
    int32_t pairs_ = 0;
    Growing ledgers_, entries_, indexes_, published_, happened_, maps_;
    Validity has_happened_, has_key_, has_payload_, has_broken_;
    Values keys_, names_, values_, payloads_, brokens_;

    void add_broken(const std::string* text) {
        has_broken_.push(text);
        if (text) brokens_.push(*text);
        else brokens_.push(nullptr, 0);
        broken_++;
    }
};

// The position and index of a message; size: messages of its entry.
struct Place {
    Position position;
    int32_t index, size;
    explicit Place(const void* id)
        : position{lib.id_ledger(id), lib.id_entry(id)}, index(lib.id_batch(id)), size(lib.id_batch_size(id)) {}
    bool ends_entry() const { return index < 0 || index + 1 >= size; }
};

Row row_of(const void* message, const Place& place) {
    size_t size = lib.stored_length(message);
    return {lib.properties(message), lib.key(message), lib.stored_data(message), size, !size && lib.stored_null(message),
            lib.stored_published(message), lib.stored_happened(message), place.position, place.index};
}

// Whether only the binding can read it, whole or in part.
bool is_odd(const void* message, const Row& row) {
    if (row.index < 0 && lib.encryption(message).has_value) return true;
    if (!is_utf8(*row.key)) return true;
    for (const auto& [name, value] : *row.properties)
        if (!is_utf8(name) || !is_utf8(value)) return true;
    return false;
}

// Text of an object that shall be one; false with an exception set.
bool take_text(PyObject* object, std::string& text) {
    Py_ssize_t size;
    const char* found = PyUnicode_AsUTF8AndSize(object, &size);
    if (found) text.assign(found, static_cast<size_t>(size));
    return found;
}

// Adds the message as decode(_pulsar.Message, index) -> (payload or None, properties, key, broken) has it.
bool add_odd(Rows& rows, Stored& message, Row row, PyObject* decode) {
    PyObject* raw = handed_back(&message);
    PyObject* found = raw ? PyObject_CallFunction(decode, "Oi", raw, static_cast<int>(row.index)) : nullptr;
    Py_XDECREF(raw);
    Reference kept(found);
    if (found && !PyTuple_Check(found)) found = PyErr_Format(PyExc_TypeError, "a decoded message is a tuple");
    if (!found) return false;
    PyObject *payload, *properties, *key, *broken;
    std::string key_text, broken_text;
    std::vector<std::pair<std::string, std::string>> texts;  // in the order of the dictionary
    bool fine = PyArg_ParseTuple(found, "OO!UU", &payload, &PyDict_Type, &properties, &key, &broken) &&
                take_text(key, key_text) && take_text(broken, broken_text);
    if (fine && payload != Py_None && !PyBytes_Check(payload))
        fine = PyErr_Format(PyExc_TypeError, "a payload is bytes or None");
    PyObject *name, *value;
    for (Py_ssize_t at = 0; fine && PyDict_Next(properties, &at, &name, &value);) {
        auto& [name_text, text] = texts.emplace_back();
        fine = take_text(name, name_text) && take_text(value, text);
    }
    if (fine) {
        row.key = &key_text, row.null = payload == Py_None;
        row.payload = row.null ? nullptr : PyBytes_AS_STRING(payload);
        row.size = row.null ? 0 : static_cast<size_t>(PyBytes_GET_SIZE(payload));
        if ((fine = rows.has_room(row, texts))) rows.add(row, texts, broken_text.empty() ? nullptr : &broken_text);
        else PyErr_Format(PyExc_OverflowError, "a message of %zu bytes", row.size);
    }
    return fine;
}

// ---- BatchReader: one reader of one partition, up to a place

enum Stop { kFull, kOdd, kEnd, kOverrun, kResult };  // kResult: no message came, and the library says why

struct Fill {
    void* reader;
    Rows rows;
    Position end;
    long long most, most_bytes, each;  // rows and bytes of a batch; bytes of an entry on average
    int wait, result = 0;
    bool payload;
    Stored pending;  // read, and not a row yet
    Position at{-1, -1};
    bool whole = false;              // the entry was read from its first message on
    long long bytes = 0, of_entry = 0;
    std::vector<Run> runs;

    Fill(void* of, Position last, bool with_payload, uint64_t latest, const long long* limits)
        : reader(of), rows(with_payload, latest), end(last), most(limits[0]), most_bytes(limits[1]), each(limits[2]),
          wait(static_cast<int>(limits[3])), payload(with_payload) {}

    // Reads until a batch is full, or something else has to be told; without the interpreter. Throws std::bad_alloc.
    Stop go_on() {
        while (true) {
            if (!pending && (result = lib.read_next(reader, &pending, wait))) return pending.reset(), kResult;
            Place place(lib.stored_id(&pending));
            if (place.position > end) return pending.reset(), kOverrun;
            Row row = row_of(&pending, place);
            if (rows.count() && !rows.has_room(row, *row.properties)) return kFull;
            note(place, row);
            if (is_odd(&pending, row)) return kOdd;
            rows.add(row, *row.properties);
            pending.reset();
            if (auto stop = after(place, row.size); stop >= 0) return static_cast<Stop>(stop);
        }
    }

    // What follows from a row that was added: a Stop, or -1 for none.
    int after(const Place& place, size_t size) {
        of_entry += static_cast<long long>(payload ? size : 0);
        if (place.ends_entry() || !whole) bytes += std::max(of_entry, each), of_entry = 0;
        if (place.position == end && place.ends_entry()) return kEnd;
        bool full = rows.count() >= most || bytes >= most_bytes;
        return full && (place.ends_entry() || !whole || rows.count() >= most + kLargest) ? kFull : -1;
    }

    static constexpr long long kLargest = 200000;  // rows beyond the limit, for the rest of an entry

   private:
    void note(const Place& place, const Row& row) {
        if (place.position == at) return;
        bool follows = !runs.empty() && runs.back().ledger == place.position.ledger &&
                       runs.back().last + 1 == place.position.entry;
        at = place.position, whole = place.index <= 0, of_entry = 0;
        if (follows) {
            runs.back().last = at.entry, runs.back().last_published = row.published;
            return;
        }
        std::string id;
        lib.id_serialize(lib.stored_id(&pending), &id);
        runs.push_back({at.ledger, at.entry, at.entry, row.published, row.published, std::move(id)});
    }
};

struct BatchReader {
    PyObject_HEAD PyObject* owner;  // keeps the reader
    PyObject* decode;
    Fill* fill;
    bool busy, failed;  // failed: columns may differ in length since something was thrown
};

// BatchReader(of pulsar-client's, decode, (last ledger, last entry), payload, latest, rows, bytes, bytes of an entry, wait_ms)
PyObject* batch_reader_new(PyTypeObject* type, PyObject* args, PyObject*) {
    PyObject *owner, *decode;
    long long ledger, entry, latest, limits[4];
    int payload;
    if (!usable() || !PyArg_ParseTuple(args, "OO(LL)pLLLLL", &owner, &decode, &ledger, &entry, &payload, &latest, &limits[0],
                                       &limits[1], &limits[2], &limits[3]))
        return nullptr;
    if (!PyCallable_Check(decode) || latest < 0 || latest > INT64_MAX / 1000 || limits[0] < 1 || limits[1] < 1 ||
        limits[2] < 0 || limits[3] < 1 || limits[3] > INT32_MAX)
        return PyErr_Format(PyExc_ValueError, "a function, limits from 1, and a time in ms are needed");
    void* found = pointer_of<pulsar::Reader>(owner);
    if (!found || !same_object(owner, {{"topic", lib.reader_topic(found)}})) return nullptr;
    BatchReader* reader = reinterpret_cast<BatchReader*>(type->tp_alloc(type, 0));
    if (!reader) return nullptr;
    reader->owner = Py_NewRef(owner), reader->decode = Py_NewRef(decode);
    reader->fill = new (std::nothrow) Fill(found, {ledger, entry}, payload, static_cast<uint64_t>(latest), limits);
    if (reader->fill) return reinterpret_cast<PyObject*>(reader);
    Py_DECREF(reader);
    return PyErr_NoMemory();
}

void batch_reader_dealloc(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    BatchReader* reader = reinterpret_cast<BatchReader*>(self);
    delete reader->fill;
    Py_XDECREF(reader->decode);
    Py_XDECREF(reader->owner);
    type->tp_free(self);
    Py_DECREF(type);
}

PyObject* runs_of(const std::vector<Run>& runs) {
    PyObject* list = PyList_New(static_cast<Py_ssize_t>(runs.size()));
    for (size_t i = 0; list && i < runs.size(); i++) {
        const Run& one = runs[i];
        PyObject* made = Py_BuildValue("LLLKKy#", static_cast<long long>(one.ledger), static_cast<long long>(one.first),
                                       static_cast<long long>(one.last), static_cast<unsigned long long>(one.published),
                                       static_cast<unsigned long long>(one.last_published), one.id.data(),
                                       static_cast<Py_ssize_t>(one.id.size()));
        if (made) PyList_SET_ITEM(list, static_cast<Py_ssize_t>(i), made);
        else Py_CLEAR(list);
    }
    return list;
}

// Fills a batch; an odd message is decoded with the interpreter. -1 with an exception set. Throws what the library does.
int fill_batch(Fill& fill, PyObject* decode) {
    while (true) {
        Stop stop = kFull;
        rethrow(released([&] { stop = fill.go_on(); }));
        if (stop != kOdd) return stop;
        Place place(lib.stored_id(&fill.pending));
        Row row = row_of(&fill.pending, place);
        size_t size = row.size;
        if (!add_odd(fill.rows, fill.pending, row, decode)) return -1;
        fill.pending.reset();
        int after = fill.after(place, size);
        if (after >= 0) return after;
    }
}

PyObject* batch_of(Fill& fill, PyObject* decode) {
    int stop = fill_batch(fill, decode);
    if (stop < 0) return nullptr;
    long long count = fill.rows.count();
    PyObject* runs = runs_of(fill.runs);
    Reference kept(runs);
    PyObject* columns = runs ? fill.rows.hand_out() : nullptr;
    fill.runs.clear(), fill.bytes = fill.of_entry = 0;
    return columns ? Py_BuildValue("LiiNN", count, stop, stop == kResult ? fill.result : 0, kept.release(), columns) : nullptr;
}

// read() -> (rows, Stop, result, [(ledger, first entry, last, published, last published, id)], columns)
PyObject* batch_reader_read(PyObject* self, PyObject*) {
    if (!usable()) return nullptr;
    BatchReader* reader = reinterpret_cast<BatchReader*>(self);
    if (reader->busy) return PyErr_Format(PyExc_RuntimeError, "another thread reads");
    if (reader->failed) return PyErr_Format(PyExc_RuntimeError, "an earlier read failed");
    reader->busy = reader->failed = true;
    PyObject* made = nullptr;
    try {
        made = batch_of(*reader->fill, reader->decode);
    } catch (const std::exception&) {
        reader->busy = false;
        throw;
    }
    reader->busy = false, reader->failed = !made;
    return made;
}

// columns([_pulsar.Message, ...], decode, payload, latest) -> columns of the messages, which are empty then. For the self-test.
PyObject* module_columns(PyObject*, PyObject* args) {
    PyObject *messages, *decode;
    int payload;
    long long latest;
    if (!usable() || !PyArg_ParseTuple(args, "O!OpL", &PyList_Type, &messages, &decode, &payload, &latest)) return nullptr;
    Rows rows(payload, static_cast<uint64_t>(latest));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(messages); i++) {
        void* pointer = pointer_of<pulsar::Message>(PyList_GET_ITEM(messages, i));
        if (!pointer) return nullptr;
        Stored message;
        exchange(&message, pointer);
        Row row = row_of(&message, Place(lib.stored_id(&message)));
        if (!is_odd(&message, row)) rows.add(row, *row.properties);
        else if (!add_odd(rows, message, row, decode)) return nullptr;
    }
    return rows.hand_out();
}

PyMethodDef batch_reader_methods[] = {{"read", Guarded<batch_reader_read>::call, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};

}  // namespace
