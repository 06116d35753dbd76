//! The CPU backend: products on quantized blocks with 8-bit activations, and the exact mode.
