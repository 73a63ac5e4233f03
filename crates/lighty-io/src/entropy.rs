//! Unpredictable bytes.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::simulated;

/// Returns `N` random bytes from the kernel.
///
/// # Errors
/// Errors of the system. After boot, the kernel always has random bytes.
pub fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    if let Some(world) = simulated::world() {
        bytes.fill_with(|| world.random() as u8);
        return Ok(bytes);
    }
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn random_bytes_differ_each_time() {
        let one = super::random_bytes::<16>().expect("random bytes");
        assert_ne!(one, super::random_bytes::<16>().expect("random bytes"));
    }
}
