//! The demo models: fetched once, checked, and kept in the user's cache folder.
