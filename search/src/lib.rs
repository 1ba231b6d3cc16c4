//! What harnesses search: passages in an index of our own, or a retrieval server.
//!
//! - [`Index`] keeps passages in tantivy's files and ranks them by BM25, and where it was built with
//!   an [`Encoder`], by what they are about, too.
//! - [`Server`] asks a server that speaks Search-R1's protocol.
//!
//! Both are a [`SearchIndex`](whale_runtime::ports::SearchIndex).

mod dense;
mod encoder;
mod error;
mod index;
mod passages;
mod ranking;
mod server;

pub use encoder::Encoder;
pub use error::SearchError;
pub use index::{Built, Index};
pub use passages::{Passage, read};
pub use ranking::Bm25;
pub use server::Server;
