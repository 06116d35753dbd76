//! A sequence on a backend: its KV cache, prefill and decode.
