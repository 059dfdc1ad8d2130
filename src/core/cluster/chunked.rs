//! A vector in shared chunks: a clone costs one pointer per chunk.

use std::sync::Arc;

/// Elements per chunk.
pub(crate) const CHUNK: usize = 256;

/// A growable vector whose chunks are shared between clones until written.
///
/// Chunks nobody wrote to are one and the same: the column of a resource that
/// few nodes have, or that only a pod ever named, costs a pointer per chunk.
#[derive(Clone, Debug)]
pub(crate) struct Chunked<T> {
    chunks: Vec<Arc<Vec<T>>>,
    blank: Arc<Vec<T>>,
    len: usize,
}

impl<T> Default for Chunked<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), blank: Arc::default(), len: 0 }
    }
}

impl<T: Clone + Default> Chunked<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> &T {
        &self.chunks[i / CHUNK][i % CHUNK]
    }

    /// Write access; copies the chunk if a clone shares it.
    #[inline]
    pub(crate) fn get_mut(&mut self, i: usize) -> &mut T {
        &mut Arc::make_mut(&mut self.chunks[i / CHUNK])[i % CHUNK]
    }

    /// Grows to at least `len` with default elements.
    pub(crate) fn grow(&mut self, len: usize) {
        if len <= self.len {
            return;
        }
        if self.blank.is_empty() {
            self.blank = Arc::new(vec![T::default(); CHUNK]);
        }
        self.chunks.resize_with(len.div_ceil(CHUNK), || Arc::clone(&self.blank));
        self.len = len;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|c| c.iter()).take(self.len)
    }
}
