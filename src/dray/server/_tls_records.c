/* Loops that would cost more in Python than what they call.

A client may send records of TLS of a kibibyte, and SSL_read gives back one at a time: to ask for each from
Python takes longer than to decrypt it. The functions are those of the OpenSSL inside the package
`cryptography`. They are handed over by their addresses, as its own binding has them, so that neither headers
nor a second OpenSSL are needed here.

What goes out is encrypted record by record, in buffers that stay in the processor's cache, and given to the socket
many records at a time, while other threads run. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#define RECORD (16 << 10)
#define ENCRYPTED (RECORD + (1 << 10)) /* with a header, a tag and padding */

typedef int (*transfer)(void *from, void *buffer, int size);

static PyObject *
read_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long function, ssl;
    Py_buffer buffer;
    Py_ssize_t filled = 0;
    int last = 1;

    if (!PyArg_ParseTuple(args, "KKw*", &function, &ssl, &buffer))
        return NULL;
    while (filled < buffer.len) {
        Py_ssize_t left = buffer.len - filled;
        last = ((transfer)(uintptr_t)function)((void *)(uintptr_t)ssl, (char *)buffer.buf + filled,
                                               left > INT_MAX ? INT_MAX : (int)left);
        if (last <= 0)
            break;
        filled += last;
    }
    PyBuffer_Release(&buffer);
    return Py_BuildValue("ni", filled, last);
}

static PyObject *
take(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long function, bio;
    int size, taken;
    PyObject *bytes;

    if (!PyArg_ParseTuple(args, "KKi", &function, &bio, &size))
        return NULL;
    if (size < 0) {
        PyErr_SetString(PyExc_ValueError, "a negative size");
        return NULL;
    }
    bytes = PyBytes_FromStringAndSize(NULL, size);
    if (bytes == NULL || size == 0)
        return bytes;
    taken = ((transfer)(uintptr_t)function)((void *)(uintptr_t)bio, PyBytes_AS_STRING(bytes), size);
    if (taken < size)
        _PyBytes_Resize(&bytes, taken < 0 ? 0 : taken);
    return bytes;
}

/* The next plain bytes of a list of buffers, at most `most` of them. They are given where they lie, or put together
where a buffer has fewer. */
struct source {
    Py_buffer *buffers;
    Py_ssize_t count, at, offset;
    char together[RECORD];
};

static Py_ssize_t
next_bytes(struct source *source, Py_ssize_t most, char **from)
{
    Py_ssize_t size = 0;

    while (source->at < source->count && size < most) {
        Py_buffer *buffer = &source->buffers[source->at];
        Py_ssize_t part = buffer->len - source->offset;
        char *place = (char *)buffer->buf + source->offset;
        if (size == 0 && part >= most) {
            source->offset += most;
            *from = place;
            return most;
        }
        if (part > most - size)
            part = most - size;
        memcpy(source->together + size, place, part);
        size += part;
        source->offset += part;
        if (source->offset == buffer->len) {
            source->at++;
            source->offset = 0;
        }
    }
    *from = source->together;
    return size;
}

/* Encrypts what the buffers hold, up to `limit` bytes, and sends it, until all is sent or the socket takes no more.
All records but the last are full, and as many as `scratch` has room for are sent at once: a peer that waits is
woken by each packet, which costs as much as to encrypt it. Gives how much was encrypted, what of that is left to
be sent, and whether OpenSSL has failed. What the socket says is for its transport to find. */
static PyObject *
send_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long write_function, ssl, read_function, bio;
    Py_ssize_t limit, taken = 0, done = 0, held = 0, sent = 0;
    int descriptor, failed = 0;
    struct source source = {.at = 0, .offset = 0};
    PyObject *list, *answer = NULL;
    Py_buffer scratch;

    if (!PyArg_ParseTuple(args, "KKKKiO!nw*", &write_function, &ssl, &read_function, &bio, &descriptor, &PyList_Type,
                          &list, &limit, &scratch))
        return NULL;
    source.count = PyList_GET_SIZE(list);
    source.buffers = PyMem_Calloc(source.count ? source.count : 1, sizeof(Py_buffer));
    if (source.buffers == NULL) {
        PyErr_NoMemory();
        goto release;
    }
    for (; taken < source.count; taken++)
        if (PyObject_GetBuffer(PyList_GET_ITEM(list, taken), &source.buffers[taken], PyBUF_SIMPLE) < 0)
            goto release;
    if (scratch.len < ENCRYPTED) {
        PyErr_SetString(PyExc_ValueError, "no room for a record");
        goto release;
    }
    Py_BEGIN_ALLOW_THREADS
    while (done < limit && sent == held && !failed) {
        held = sent = 0;
        while (done < limit && scratch.len - held >= ENCRYPTED) {
            char *from;
            Py_ssize_t size = next_bytes(&source, limit - done < RECORD ? limit - done : RECORD, &from);
            int encrypted;
            if (size == 0)
                break;
            if (((transfer)(uintptr_t)write_function)((void *)(uintptr_t)ssl, from, (int)size) <= 0) {
                failed = 1;
                break;
            }
            done += size;
            encrypted = ((transfer)(uintptr_t)read_function)((void *)(uintptr_t)bio, (char *)scratch.buf + held,
                                                             ENCRYPTED);
            if (encrypted > 0)
                held += encrypted;
        }
        if (held == 0)
            break;
        while (sent < held) {
            ssize_t now = send(descriptor, (char *)scratch.buf + sent, held - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (now < 0 && errno == EINTR)
                continue;
            if (now <= 0)
                break;
            sent += now;
        }
    }
    Py_END_ALLOW_THREADS
    answer = Py_BuildValue("ny#i", done, (char *)scratch.buf + sent, held - sent, failed);
release:
    while (taken > 0)
        PyBuffer_Release(&source.buffers[--taken]);
    PyMem_Free(source.buffers);
    PyBuffer_Release(&scratch);
    return answer;
}

/* SO_RCVLOWAT. uvloop's sockets make a socket of Python for each option that is set, which asks the system twice. */
static PyObject *
wake_at(PyObject *Py_UNUSED(module), PyObject *args)
{
    int descriptor, size;

    if (!PyArg_ParseTuple(args, "ii", &descriptor, &size))
        return NULL;
    return PyBool_FromLong(setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &size, sizeof(size)) == 0);
}

static PyMethodDef methods[] = {
    {"send_records", send_records, METH_VARARGS,
     "send_records(SSL_write, ssl, BIO_read, bio, descriptor, buffers, limit, scratch): how much of the buffers was "
     "encrypted, what of that the socket did not take, and whether OpenSSL failed."},
    {"read_records", read_records, METH_VARARGS,
     "read_records(SSL_read, ssl, buffer): how much of the buffer was filled, and SSL_read's last answer."},
    {"wake_at", wake_at, METH_VARARGS,
     "wake_at(descriptor, size): the socket wakes its reader once it has so many bytes. False where it does not."},
    {"take", take, METH_VARARGS, "take(BIO_read, bio, size): that many bytes of it, or as many as it has."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_tls_records", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__tls_records(void)
{
    return PyModule_Create(&module);
}
