/* Two loops that would cost more in Python than what they call.

A client may send records of TLS of a kibibyte, and SSL_read gives back one at a time: to ask for each from
Python takes longer than to decrypt it. The functions are those of the OpenSSL inside the package
`cryptography`. They are handed over by their addresses, as its own binding has them, so that neither headers
nor a second OpenSSL are needed here. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <limits.h>

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

static PyMethodDef methods[] = {
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
