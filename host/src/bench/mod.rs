//! Measurements of prefill and decode speed in llama-bench's terms.
