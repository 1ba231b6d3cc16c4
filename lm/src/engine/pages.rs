//! Which pages of the memory are free, who uses the others, and what they hold.

use std::collections::{HashMap, VecDeque};

use sha2::{Digest as _, Sha256};

use crate::kernels::attention::PAGE;

/// What a page holds: a hash of the model, the adapter, and all tokens up to the page's end. Guests
/// choose tokens, so it must be one for which nobody can find two texts.
pub(super) type Key = [u8; 32];

/// The key before a sequence's first page.
pub(super) fn root(model: &str, adapter: Option<&str>) -> Key {
    let mut hasher = Sha256::new();
    hasher.update(model.as_bytes());
    hasher.update([0]);
    hasher.update(adapter.unwrap_or_default().as_bytes());
    hasher.finalize().into()
}

/// The keys of all full pages of these tokens.
pub(super) fn keys(root: Key, tokens: &[u32]) -> Vec<Key> {
    let (pages, _) = tokens.as_chunks::<PAGE>();
    let mut key = root;
    let next = |page: &[u32; PAGE]| {
        let mut hasher = Sha256::new();
        hasher.update(key);
        hasher.update(bytemuck::cast_slice::<u32, u8>(page));
        key = hasher.finalize().into();
        key
    };
    pages.iter().map(next).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Page {
    users: u32,
    key: Option<Key>,
}

/// The pages of a memory.
#[derive(Debug)]
pub(super) struct PageTable {
    pages: Vec<Page>,
    free: Vec<u32>,
    /// Pages without users that hold something, the next to be given away first.
    idle: VecDeque<u32>,
    known: HashMap<Key, u32>,
}

impl PageTable {
    pub(super) fn new(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            pages: vec![Page::default(); count as usize],
            free: (0..count).rev().collect(),
            idle: VecDeque::new(),
            known: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Pages that nobody uses.
    pub(super) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// A page for one user. What an idle one held is forgotten.
    pub(super) fn take(&mut self) -> Option<u32> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = self.idle.pop_front()?;
                if let Some(key) = self.pages[index as usize].key.take() {
                    self.known.remove(&key);
                }
                index
            }
        };
        self.pages[index as usize].users = 1;
        Some(index)
    }

    /// The page that holds this, for one more user.
    pub(super) fn share(&mut self, key: &Key) -> Option<u32> {
        let index = *self.known.get(key)?;
        let page = &mut self.pages[index as usize];
        if page.users == 0 {
            self.idle.retain(|idle| *idle != index);
        }
        page.users += 1;
        Some(index)
    }

    pub(super) fn knows(&self, key: &Key) -> bool {
        self.known.contains_key(key)
    }

    /// Says what a page holds from now on, unless another page holds it already.
    pub(super) fn register(&mut self, index: u32, key: Key) {
        if let std::collections::hash_map::Entry::Vacant(place) = self.known.entry(key) {
            place.insert(index);
            self.pages[index as usize].key = Some(key);
        }
    }

    /// One user less for each of a sequence's pages. Its last pages are given away first: heads are
    /// shared more often than tails.
    pub(super) fn release(&mut self, pages: impl DoubleEndedIterator<Item = u32>) {
        for index in pages.rev() {
            let page = &mut self.pages[index as usize];
            page.users -= 1;
            if page.users == 0 {
                if page.key.is_some() {
                    self.idle.push_back(index);
                } else {
                    self.free.push(index);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_depend_on_model_adapter_and_every_token_before() {
        let tokens: Vec<u32> = (0..50).collect();
        let of =
            |model: &str, adapter: Option<&str>, tokens: &[u32]| keys(root(model, adapter), tokens);
        let all = of("m", None, &tokens);
        assert_eq!(all.len(), 3);
        assert_eq!(of("m", None, &tokens[..40]), all[..2]);
        let mut other = tokens.clone();
        other[0] = 9;
        for different in [
            of("m", Some("a"), &tokens),
            of("n", None, &tokens),
            of("m", None, &other),
        ] {
            assert!(different.iter().zip(&all).all(|(a, b)| a != b));
        }
    }

    proptest! {
        #[test]
        fn pages_are_never_lost_nor_given_twice(steps in prop::collection::vec((0..4u8, 0..6usize, 0..9u8), 1..200)) {
            let mut table = PageTable::new(12);
            let mut held: Vec<Vec<u32>> = vec![Vec::new(); 6];
            for (step, who, what) in steps {
                let key = [what; 32];
                match step {
                    0 => {
                        let available = table.available();
                        match table.take() {
                            Some(page) => {
                                prop_assert!(held.iter().flatten().all(|other| *other != page));
                                held[who].push(page);
                            }
                            None => prop_assert_eq!(available, 0),
                        }
                    }
                    1 => held[who].extend(table.share(&key)),
                    2 => {
                        if let Some(page) = held[who].last()
                            && table.pages[*page as usize].key.is_none()
                        {
                            table.register(*page, key);
                        }
                    }
                    _ => table.release(std::mem::take(&mut held[who]).into_iter()),
                }
                let mut used: Vec<u32> = held.iter().flatten().copied().collect();
                used.sort_unstable();
                used.dedup();
                prop_assert_eq!(table.available() + used.len(), table.len());
            }
        }
    }
}
