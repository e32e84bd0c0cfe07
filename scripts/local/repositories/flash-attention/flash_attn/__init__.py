"""A stand-in for flash-attn: pure Python over a compiled extension, as the real one is."""

import flash_attn_2_cuda

__version__ = flash_attn_2_cuda.version()
