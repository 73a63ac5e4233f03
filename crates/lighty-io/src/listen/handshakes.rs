//! Blocks new handshakes of a listening socket.

use std::io;
use std::os::fd::AsFd;

use socket2::{SockFilter, SockRef};

/// Classic BPF over a TCP header: segments with SYN and without ACK, which begin a handshake, are
/// dropped. linux/bpf_common.h: BPF_LD|BPF_B|BPF_ABS, BPF_ALU|BPF_AND|BPF_K, BPF_JMP|BPF_JEQ|BPF_K,
/// BPF_RET|BPF_K.
const NO_HANDSHAKES: [SockFilter; 5] = {
    const FLAGS_AT: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    [
        SockFilter::new(0x30, 0, 0, FLAGS_AT),
        SockFilter::new(0x54, 0, 0, SYN | ACK),
        SockFilter::new(0x15, 0, 1, SYN),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ]
};

/// Drops segments that begin a handshake.
///
/// # Errors
/// The system's: some kernels demand a privilege.
pub(crate) fn refuse(socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&NO_HANDSHAKES)
}
