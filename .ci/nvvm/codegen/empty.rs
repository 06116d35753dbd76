//! In the place of the backend, see `../Cargo.toml`.
