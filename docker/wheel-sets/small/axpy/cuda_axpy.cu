// y = a * x + y for vectors of float32, in place. Anything with Python's buffer protocol will do.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

__global__ void axpy_kernel(float a, const float *x, float *y, size_t n) {
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

static cudaError_t on_gpu(float a, const void *x, void *y, size_t bytes) {
  const unsigned threads = 256;
  const size_t n = bytes / sizeof(float);
  float *gpu_x = nullptr, *gpu_y = nullptr;
  cudaError_t error = cudaMalloc(&gpu_x, bytes);
  if (!error) error = cudaMalloc(&gpu_y, bytes);
  if (!error) error = cudaMemcpy(gpu_x, x, bytes, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemcpy(gpu_y, y, bytes, cudaMemcpyHostToDevice);
  if (!error && n) {
    axpy_kernel<<<static_cast<unsigned>((n + threads - 1) / threads), threads>>>(a, gpu_x, gpu_y, n);
    error = cudaGetLastError();
  }
  if (!error) error = cudaMemcpy(y, gpu_y, bytes, cudaMemcpyDeviceToHost);
  cudaFree(gpu_x);
  cudaFree(gpu_y);
  return error;
}

static PyObject *axpy(PyObject *, PyObject *arguments) {
  float a;
  Py_buffer x, y;
  if (!PyArg_ParseTuple(arguments, "fy*w*", &a, &x, &y)) return nullptr;
  const bool fits = x.len == y.len && x.len % sizeof(float) == 0;
  const cudaError_t error = fits ? on_gpu(a, x.buf, y.buf, x.len) : cudaSuccess;
  PyBuffer_Release(&x);
  PyBuffer_Release(&y);
  if (!fits) return PyErr_Format(PyExc_ValueError, "axpy: x and y are not two vectors of float32 of one length");
  if (error) return PyErr_Format(PyExc_RuntimeError, "axpy: %s", cudaGetErrorString(error));
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"axpy", axpy, METH_VARARGS, "axpy(a, x, y): y = a * x + y, float32, in place."},
    {nullptr, nullptr, 0, nullptr},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "cuda_axpy", nullptr, -1, methods};

PyMODINIT_FUNC PyInit_cuda_axpy() { return PyModule_Create(&module); }
