//! The weights of the resize as tables for a GPU, whose kernels sum what [`resize()`](super::resize()) sums.

use super::resize::Axis;

/// Which source samples make each output sample of one pass, and with what weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taps {
    /// (outputs): the first source sample of each.
    pub first: Vec<i32>,
    /// (outputs): how many source samples each has.
    pub count: Vec<i32>,
    /// (taps, outputs): whole numbers with 22 bits after the point; zeros where an output has fewer than the most.
    pub weights: Vec<i32>,
}

impl Taps {
    /// For a side of `from` samples, at least one, that becomes `to`. Sides are below 2^31.
    #[must_use]
    pub fn new(from: usize, to: usize) -> Self {
        let axis = Axis::new(from, to);
        let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        let most = axis.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0);
        let mut taps =
            Self { first: Vec::with_capacity(to), count: Vec::with_capacity(to), weights: vec![0; most * to] };
        for (output, (first, weights)) in axis.iter().enumerate() {
            taps.first.push(whole(first));
            taps.count.push(whole(weights.len()));
            for (tap, weight) in weights.iter().enumerate() {
                taps.weights[tap * to + output] = *weight;
            }
        }
        taps
    }

    /// The most source samples that an output has.
    #[must_use]
    pub fn most(&self) -> usize {
        self.weights.len() / self.first.len().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Size;
    use crate::screenshot::resize;

    #[test]
    fn sums_over_the_tables_are_the_resize() {
        for (from, to) in [(1, 1), (1, 9), (9, 1), (7, 5), (40, 33), (33, 40), (16, 16)] {
            let row: Vec<u8> = (0..from * 3).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let taps = Taps::new(from as usize, to as usize);
            let mut out = Vec::new();
            for output in 0..to as usize {
                for channel in 0..3 {
                    let terms = (0..usize::try_from(taps.count[output]).unwrap()).map(|tap| {
                        let sample = usize::try_from(taps.first[output]).unwrap() + tap;
                        taps.weights[tap * to as usize + output] * i32::from(row[sample * 3 + channel])
                    });
                    let sum = (1 << 21) + terms.sum::<i32>();
                    out.push(u8::try_from((sum >> 22).clamp(0, 255)).unwrap());
                }
            }
            assert_eq!(out, resize(&row, Size::new(from, 1), Size::new(to, 1)), "{from} to {to}");
            assert!(taps.most() >= 1 && taps.count.iter().any(|&count| usize::try_from(count) == Ok(taps.most())));
        }
    }
}
