/* Loops that would cost more in Python than what they call.

A client may send records of TLS of a kibibyte, and SSL_read gives back one at a time: to ask for each from
Python takes longer than to decrypt it. The functions are those of the OpenSSL inside the package
`cryptography`. They are handed over by their addresses, as its own binding has them, so that neither headers
nor a second OpenSSL are needed here.

What goes out is encrypted and given to the socket piece by piece, in one buffer that stays in the processor's
cache, while other threads run. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <limits.h>
#include <sys/socket.h>

#define PIECE (64 << 10)
#define ENCRYPTED (PIECE + (4 << 10)) /* four records, each with a header and a tag */

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

/* Encrypts `data` and sends it, until all is sent or the socket takes no more. Gives how much was encrypted, what
of that is left to be sent, and whether OpenSSL has failed. What the socket says is for its transport to find. */
static PyObject *
send_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    unsigned long long write_function, ssl, read_function, bio;
    Py_buffer data;
    Py_ssize_t done = 0;
    int descriptor, failed = 0, held = 0, sent = 0;
    char encrypted[ENCRYPTED];

    if (!PyArg_ParseTuple(args, "KKKKiy*", &write_function, &ssl, &read_function, &bio, &descriptor, &data))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    while (done < data.len && sent == held) {
        int piece = data.len - done > PIECE ? PIECE : (int)(data.len - done);
        if (((transfer)(uintptr_t)write_function)((void *)(uintptr_t)ssl, (char *)data.buf + done, piece) <= 0) {
            failed = 1;
            break;
        }
        done += piece;
        held = ((transfer)(uintptr_t)read_function)((void *)(uintptr_t)bio, encrypted, ENCRYPTED);
        if (held < 0)
            held = 0;
        sent = 0;
        while (sent < held) {
            ssize_t now = send(descriptor, encrypted + sent, held - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (now < 0 && errno == EINTR)
                continue;
            if (now <= 0)
                break;
            sent += (int)now;
        }
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return Py_BuildValue("ny#i", done, encrypted + sent, (Py_ssize_t)(held - sent), failed);
}

static PyMethodDef methods[] = {
    {"send_records", send_records, METH_VARARGS,
     "send_records(SSL_write, ssl, BIO_read, bio, descriptor, data): how much of it was encrypted, what of that "
     "the socket did not take, and whether OpenSSL failed."},
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
