/* Loops that would cost more in Python than what they call.

A client may send records of TLS of a kibibyte, and SSL_read gives back one at a time: to ask for each from
Python takes longer than to decrypt it. The functions are those of the OpenSSL inside the package
`cryptography`. They are handed over by their addresses, as its own binding has them, so that neither headers
nor a second OpenSSL are needed here.

What goes out is encrypted and given to the socket record by record, from OpenSSL's own buffer, which stays in the
processor's cache, while other threads run. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define RECORD (16 << 10)

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

static void
cork(int descriptor, int on)
{
#ifdef TCP_CORK
    setsockopt(descriptor, IPPROTO_TCP, TCP_CORK, &on, sizeof(on));
#endif
}

/* Encrypts what the buffers hold, up to `limit` bytes, and has OpenSSL write it to the socket that it was given:
record by record, until all is sent or the socket takes no more. Small buffers are put together, so that all
records but the last are full. The socket is corked meanwhile: it makes large packets of them. Gives how much was
encrypted, and the plain bytes of a record that the socket did not take whole: OpenSSL wants them again. */
static PyObject *
send_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long function, ssl;
    Py_ssize_t limit, count, held = 0, at = 0, offset = 0, done = 0, size = 0;
    int descriptor, stopped = 0;
    char together[RECORD], *from = NULL;
    PyObject *list, *answer = NULL;
    Py_buffer *buffers;

    if (!PyArg_ParseTuple(args, "KKiO!n", &function, &ssl, &descriptor, &PyList_Type, &list, &limit))
        return NULL;
    count = PyList_GET_SIZE(list);
    buffers = PyMem_Calloc(count ? count : 1, sizeof(Py_buffer));
    if (buffers == NULL)
        return PyErr_NoMemory();
    for (; held < count; held++)
        if (PyObject_GetBuffer(PyList_GET_ITEM(list, held), &buffers[held], PyBUF_SIMPLE) < 0)
            goto release;
    Py_BEGIN_ALLOW_THREADS
    cork(descriptor, 1);
    while (done < limit) {
        Py_ssize_t most = limit - done < RECORD ? limit - done : RECORD;
        while (at < count && offset == buffers[at].len) {
            at++;
            offset = 0;
        }
        if (at == count)
            break;
        size = buffers[at].len - offset;
        if (size >= most) {
            size = most;
            from = (char *)buffers[at].buf + offset;
            offset += size;
        } else {
            for (size = 0; at < count && size < most;) {
                Py_ssize_t part = buffers[at].len - offset;
                if (part > most - size)
                    part = most - size;
                memcpy(together + size, (char *)buffers[at].buf + offset, part);
                size += part;
                offset += part;
                if (offset == buffers[at].len) {
                    at++;
                    offset = 0;
                }
            }
            from = together;
        }
        done += size;
        if (((transfer)(uintptr_t)function)((void *)(uintptr_t)ssl, from, (int)size) <= 0) {
            stopped = 1;
            break;
        }
    }
    cork(descriptor, 0);
    Py_END_ALLOW_THREADS
    answer = Py_BuildValue("ny#", done, stopped ? from : "", stopped ? size : (Py_ssize_t)0);
release:
    while (held > 0)
        PyBuffer_Release(&buffers[--held]);
    PyMem_Free(buffers);
    return answer;
}

static PyMethodDef methods[] = {
    {"send_records", send_records, METH_VARARGS,
     "send_records(SSL_write, ssl, descriptor, buffers, limit): how much of the buffers was encrypted, and the plain "
     "bytes of a record that the socket did not take whole."},
    {"read_records", read_records, METH_VARARGS,
     "read_records(SSL_read, ssl, buffer): how much of the buffer was filled, and SSL_read's last answer."},
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
