/* A stand-in for the CUDA extension: compiled for one version of Python, so a wrong one cannot load it. */
#include <Python.h>

static PyObject *version(PyObject *self, PyObject *args) {
  (void)self, (void)args;
  return PyUnicode_FromString(FLASH_ATTN_VERSION);
}

static PyMethodDef methods[] = {{"version", version, METH_NOARGS, "The version it was compiled as."}, {0}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "flash_attn_2_cuda", NULL, -1, methods};

PyMODINIT_FUNC PyInit_flash_attn_2_cuda(void) { return PyModule_Create(&module); }
