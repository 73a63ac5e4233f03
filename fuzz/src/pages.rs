//! What authors write into pages: takes any bytes, and panics when a promise is broken.

use lighty_http::ssi::{COMMAND_BYTES_MAX, CommandName, PagePiece, Scanner, SsiCommand, holds};

/// A page means the same in one piece and in many, no byte of it is lost, and whatever its commands
/// hold can be judged.
pub fn ssi_page(data: &[u8]) {
    let Some((&step, page)) = data.split_first() else { return };
    let whole = in_pieces(page, usize::MAX);
    assert_eq!(whole, in_pieces(page, usize::from(step).max(1)), "the pieces must not matter");
    let mut again = Vec::new();
    for (is_command, bytes) in &whole {
        match is_command {
            false => again.extend_from_slice(bytes),
            true => {
                assert!(bytes.len() <= COMMAND_BYTES_MAX);
                again.extend([b"<!--#", bytes.as_slice(), b"-->"].concat());
                judge(bytes);
            }
        }
    }
    assert!(again == page, "every byte is in a piece");
}

/// Pieces with whether they are commands, neighbouring texts joined.
fn in_pieces(page: &[u8], step: usize) -> Vec<(bool, Vec<u8>)> {
    let mut pieces: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut push = |is_command: bool, bytes: &[u8]| match pieces.last_mut() {
        Some((false, text)) if !is_command => text.extend_from_slice(bytes),
        _ if !is_command && bytes.is_empty() => {}
        _ => pieces.push((is_command, bytes.to_vec())),
    };
    let mut scanner = Scanner::default();
    for part in page.chunks(step.min(page.len().max(1))) {
        let mut rest = part;
        while !rest.is_empty() {
            let (piece, used) = scanner.next(rest);
            match piece {
                Some(PagePiece::Text(text)) => push(false, text),
                Some(PagePiece::Command(command)) => push(true, command),
                None => assert_eq!(used, rest.len(), "without a piece all is used up"),
            }
            rest = &rest[used..];
        }
    }
    push(false, scanner.finish());
    pieces
}

/// Takes a command apart; what an expression says never depends on its variables' texts alone.
fn judge(text: &[u8]) {
    let Ok(command) = SsiCommand::parse(text) else { return };
    for (name, value) in &command.attributes {
        assert!(!name.contains(&b'='));
        let empty = holds(value, &|_, _| {});
        let set = holds(value, &|name, out| out.extend_from_slice(name));
        assert_eq!(empty.is_err(), set.is_err(), "values are no grammar");
    }
    if command.name == CommandName::Comment {
        assert!(command.attributes.is_empty());
    }
}
