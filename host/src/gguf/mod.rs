//! GGUF files: reading, checking and writing.
