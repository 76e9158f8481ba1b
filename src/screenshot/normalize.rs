//! From bytes to the numbers a vision tower was trained on: scaled to 0..1, minus the mean, over the standard deviation.
//! It knows no model; the mean and the deviation come from the checkpoint's `preprocessor_config.json`.

use rayon::prelude::*;

/// Pixels per task: large enough that starting the task is lost in it, small enough that a 768x768 picture makes ten.
const BLOCK: usize = 1 << 16;

/// What each of the 256 levels becomes, per channel. A table is both exact and faster than the two divisions.
#[derive(Debug, Clone)]
pub struct Normalizer {
    table: Box<[[f32; 256]; 3]>,
}

impl Normalizer {
    /// The table for a mean and a standard deviation per channel, in red, green, blue order.
    ///
    /// The operations are those of transformers' image processor, rounded to f32 after each: the level times 1/255 in
    /// f64, minus the mean, over the deviation. An f32 1/255 would be off by up to 7e-7.
    #[must_use]
    pub fn new(mean: [f32; 3], std: [f32; 3]) -> Self {
        let mut table = Box::new([[0.0; 256]; 3]);
        for ((channel, mean), std) in table.iter_mut().zip(mean).zip(std) {
            for (level, value) in (0..=u8::MAX).zip(channel) {
                #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 here is the definition")]
                let scaled = (f64::from(level) * (1.0 / 255.0)) as f32;
                *value = (scaled - mean) / std;
            }
        }
        Self { table }
    }

    /// What each level becomes: (3, 256), red first.
    #[must_use]
    pub fn table(&self) -> &[f32] {
        self.table.as_flattened()
    }

    /// (height, width, 3) bytes to (3, height, width) numbers: the red plane, then green, then blue. Bytes after the last
    /// whole pixel are ignored.
    ///
    /// ```
    /// use tapline::screenshot::Normalizer;
    /// let normalizer = Normalizer::new([0.5; 3], [0.5; 3]);
    /// assert_eq!(normalizer.planes(&[0, 255, 0, 255, 0, 255]), [-1.0, 1.0, 1.0, -1.0, -1.0, 1.0]);
    /// ```
    #[must_use]
    pub fn planes(&self, rgb: &[u8]) -> Vec<f32> {
        let mut planes = vec![0.0; rgb.len() / 3 * 3];
        self.write_planes(rgb, &mut planes);
        planes
    }

    /// As [`planes`](Self::planes), into a place of that length, such as one picture of a batch (batch, 3, height, width).
    /// Where the lengths differ, the third of `planes` that belongs to a channel takes as many pixels as fit.
    pub fn write_planes(&self, rgb: &[u8], planes: &mut [f32]) {
        let pixels = planes.len() / 3;
        let (red, rest) = planes.split_at_mut(pixels);
        let (green, blue) = rest.split_at_mut(pixels);
        let [red_of, green_of, blue_of] = self.table.as_ref();
        let blocks = (red.par_chunks_mut(BLOCK), green.par_chunks_mut(BLOCK), blue.par_chunks_mut(BLOCK));
        rgb.par_chunks(BLOCK * 3).zip(blocks.into_par_iter()).for_each(|(rgb, (red, green, blue))| {
            let (rgb, _) = rgb.as_chunks::<3>();
            for (((&[r, g, b], red), green), blue) in rgb.iter().zip(red).zip(green).zip(blue) {
                *red = red_of[usize::from(r)];
                *green = green_of[usize::from(g)];
                *blue = blue_of[usize::from(b)];
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_channel_has_its_own_table() {
        let normalizer = Normalizer::new([0.0, 0.5, 1.0], [1.0, 0.5, 0.25]);
        assert_eq!(normalizer.planes(&[255, 255, 255]), [1.0, 1.0, 0.0]);
        assert_eq!(normalizer.planes(&[0, 0, 0]), [0.0, -1.0, -4.0]);
        assert!(normalizer.planes(&[]).is_empty() && normalizer.planes(&[1, 2]).is_empty());
    }

    #[test]
    fn planes_keep_their_order_across_blocks() {
        let rgb: Vec<u8> = (0..251).cycle().take(3 * (BLOCK + 77)).collect();
        let planes = Normalizer::new([0.0; 3], [1.0; 3]).planes(&rgb);
        for (i, &byte) in rgb.iter().enumerate() {
            let value = planes[i % 3 * (BLOCK + 77) + i / 3];
            assert_eq!(value.to_bits(), (f32::from(byte) / 255.0).to_bits(), "{i}");
        }
    }
}
