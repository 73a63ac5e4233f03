//! A range of a file as part of a response's body.

/// A range of a file, as part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// The allowed directory; `rel` is the path beneath it.
    pub(crate) root: Vec<u8>,
    pub(crate) rel: Vec<u8>,
    pub(crate) first: u64,
    /// Last byte, inclusive; `None`: the end of the file.
    pub(crate) last: Option<u64>,
}

impl FilePart {
    /// Offset and length of the range in a file of this size; `None` if it is out of range.
    pub(crate) fn within(&self, size: u64) -> Option<(u64, u64)> {
        let end = match self.last {
            Some(last) => last.checked_add(1)?,
            None => size,
        };
        let length = end.checked_sub(self.first)?;
        (end <= size).then_some((self.first, length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_within_their_file() {
        let part = |first, last| FilePart { root: Vec::new(), rel: Vec::new(), first, last };
        assert_eq!(part(2, Some(4)).within(5), Some((2, 3)));
        assert_eq!(part(2, Some(5)).within(5), None);
        assert_eq!(part(2, None).within(5), Some((2, 3)));
        assert_eq!(part(5, None).within(5), Some((5, 0)));
        assert_eq!(part(6, None).within(5), None);
        assert_eq!(part(3, Some(2)).within(5), Some((3, 0)));
        assert_eq!(part(4, Some(2)).within(5), None);
        assert_eq!(part(0, Some(u64::MAX)).within(5), None);
    }
}
