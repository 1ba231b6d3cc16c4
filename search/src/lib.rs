//! Passages in an index, and retrieval servers.
