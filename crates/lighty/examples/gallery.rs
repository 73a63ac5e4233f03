//! Computes the pictures of the example site's gallery: places on the edge of the Mandelbrot set,
//! as uncompressed bitmaps, so that a fresh machine has large files to serve.
//!
//! `gallery DIRECTORY` writes a large and a small bitmap of each place; `.complete` comes last.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::Path;

/// Width and height of the large pictures: 11.5 MB each.
const LARGE: (u32, u32) = (2400, 1600);

/// Width and height of the small ones.
const SMALL: (u32, u32) = (600, 400);

struct GalleryPlace {
    name: &'static str,
    x: f64,
    y: f64,
    width: f64,
    steps: u32,
}

const PLACES: [GalleryPlace; 6] = [
    GalleryPlace { name: "whole", x: -0.65, y: 0.0, width: 3.6, steps: 300 },
    GalleryPlace { name: "sea-horses", x: -0.7453, y: 0.1127, width: 0.0065, steps: 1200 },
    GalleryPlace { name: "elephants", x: 0.2925, y: 0.0149, width: 0.0125, steps: 1000 },
    GalleryPlace { name: "spiral", x: -0.744_255, y: 0.121_46, width: 0.000_95, steps: 1600 },
    GalleryPlace { name: "lightning", x: -0.170_337, y: -1.065_06, width: 0.012, steps: 700 },
    GalleryPlace { name: "small-copy", x: -1.7595, y: 0.0, width: 0.065, steps: 600 },
];

fn main() -> std::io::Result<()> {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: gallery DIRECTORY");
        std::process::exit(2);
    };
    let directory = Path::new(&directory);
    std::fs::create_dir_all(directory)?;
    let written: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> =
            PLACES.iter().map(|place| scope.spawn(|| paint(place, directory))).collect();
        running.into_iter().map(|thread| thread.join().expect("painting does not panic")).collect()
    });
    written.into_iter().collect::<Result<(), _>>()?;
    std::fs::write(directory.join(".complete"), "")
}

fn paint(place: &GalleryPlace, directory: &Path) -> std::io::Result<()> {
    for ((width, height), suffix) in [(LARGE, ""), (SMALL, "-small")] {
        let path = directory.join(format!("{}{suffix}.bmp", place.name));
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        file.write_all(&bitmap_head(width, height))?;
        for row in 0..height {
            file.write_all(&line(place, row, width, height))?;
        }
        file.flush()?;
    }
    Ok(())
}

/// Head of a bitmap with 24 bits for each pixel; widths are multiples of 4, so rows need no
/// padding.
fn bitmap_head(width: u32, height: u32) -> Vec<u8> {
    const HEAD_BYTES: u32 = 54;
    let pixels = width * height * 3;
    let mut head = b"BM".to_vec();
    for word in [HEAD_BYTES + pixels, 0, HEAD_BYTES, 40, width, height, 0x0018_0001, 0, pixels] {
        head.extend_from_slice(&word.to_le_bytes());
    }
    head.resize(HEAD_BYTES as usize, 0);
    head
}

fn line(place: &GalleryPlace, row: u32, width: u32, height: u32) -> Vec<u8> {
    let scale = place.width / f64::from(width);
    let y = place.y + (f64::from(row) - f64::from(height) / 2.0) * scale;
    (0..width)
        .flat_map(|column| {
            let x = place.x + (f64::from(column) - f64::from(width) / 2.0) * scale;
            colour(escape_time(x, y, place.steps))
        })
        .collect()
}

/// Smoothed number of steps until a point escapes; `None` for points that stay.
fn escape_time(cx: f64, cy: f64, steps: u32) -> Option<f64> {
    let (mut x, mut y) = (0.0f64, 0.0f64);
    for step in 0..steps {
        let (xx, yy) = (x * x, y * y);
        if xx + yy > 256.0 {
            return Some(f64::from(step) + 1.0 - (xx + yy).ln().log2() + 2.0);
        }
        y = 2.0 * x * y + cy;
        x = xx - yy + cx;
    }
    None
}

/// Blue, green and red of a point.
fn colour(time: Option<f64>) -> [u8; 3] {
    let Some(time) = time else { return [18, 12, 10] };
    let phase = (time.max(0.0) + 1.0).ln() * 1.9;
    let wave = |shift: f64| (127.5 + 120.0 * (phase * 1.7 + shift).sin()) as u8;
    [wave(0.6), wave(-0.5), wave(-1.4)]
}
