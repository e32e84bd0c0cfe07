// The scalar product of two vectors of float32. Anything with Python's buffer protocol will do.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

const unsigned THREADS = 256;

__global__ void dot_kernel(const float *x, const float *y, size_t n, float *sum) {
  __shared__ float parts[THREADS];
  size_t i = blockIdx.x * static_cast<size_t>(THREADS) + threadIdx.x;
  parts[threadIdx.x] = i < n ? x[i] * y[i] : 0.0f;
  for (unsigned half = THREADS / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(sum, parts[0]);
}

static cudaError_t on_gpu(const void *x, const void *y, size_t bytes, float *sum) {
  const size_t n = bytes / sizeof(float);
  float *gpu_x = nullptr, *gpu_y = nullptr, *gpu_sum = nullptr;
  cudaError_t error = cudaMalloc(&gpu_x, bytes);
  if (!error) error = cudaMalloc(&gpu_y, bytes);
  if (!error) error = cudaMalloc(&gpu_sum, sizeof(float));
  if (!error) error = cudaMemcpy(gpu_x, x, bytes, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemcpy(gpu_y, y, bytes, cudaMemcpyHostToDevice);
  if (!error) error = cudaMemset(gpu_sum, 0, sizeof(float));
  if (!error && n) {
    dot_kernel<<<static_cast<unsigned>((n + THREADS - 1) / THREADS), THREADS>>>(gpu_x, gpu_y, n, gpu_sum);
    error = cudaGetLastError();
  }
  if (!error) error = cudaMemcpy(sum, gpu_sum, sizeof(float), cudaMemcpyDeviceToHost);
  cudaFree(gpu_x);
  cudaFree(gpu_y);
  cudaFree(gpu_sum);
  return error;
}

static PyObject *dot(PyObject *, PyObject *arguments) {
  Py_buffer x, y;
  if (!PyArg_ParseTuple(arguments, "y*y*", &x, &y)) return nullptr;
  float sum = 0.0f;
  const bool fits = x.len == y.len && x.len % sizeof(float) == 0;
  const cudaError_t error = fits ? on_gpu(x.buf, y.buf, x.len, &sum) : cudaSuccess;
  PyBuffer_Release(&x);
  PyBuffer_Release(&y);
  if (!fits) return PyErr_Format(PyExc_ValueError, "dot: x and y are not two vectors of float32 of one length");
  if (error) return PyErr_Format(PyExc_RuntimeError, "dot: %s", cudaGetErrorString(error));
  return PyFloat_FromDouble(sum);
}

static PyMethodDef methods[] = {
    {"dot", dot, METH_VARARGS, "dot(x, y): their scalar product, float32."},
    {nullptr, nullptr, 0, nullptr},
};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "cuda_dot", nullptr, -1, methods};

PyMODINIT_FUNC PyInit_cuda_dot() { return PyModule_Create(&module); }
