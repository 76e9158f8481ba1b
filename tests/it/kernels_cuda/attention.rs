//! Attention over rows of different lengths, by both of its kernels.

use candle_core::Tensor;
use tapline::kernels::{self, AttentionShape};

use super::library::{Buffer, Launch};
use super::{FORMATS, Format, Tolerance, assert_close, random};

/// Queries, keys and values as they lie in memory: alone, or as parts of one tensor (batch, tokens, 3 channels).
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    /// Keys that the cache has room for.
    capacity: usize,
    packed: bool,
}

impl Operands {
    fn separate(batch: usize, queries: usize, keys: usize, channels: usize, capacity: usize) -> Self {
        let tensor = |tokens, seed| random(&[batch, tokens, channels], seed);
        Self { q: tensor(queries, 1), k: tensor(keys, 2), v: tensor(keys, 3), capacity, packed: false }
    }

    fn packed(batch: usize, tokens: usize, channels: usize) -> Self {
        Self { packed: true, ..Self::separate(batch, tokens, tokens, channels, tokens) }
    }

    /// The kernel's result.
    fn attend(&self, kernel: &str, shape: AttentionShape<'_>, format: Format) -> Tensor {
        let (batch, queries, channels) = self.q.dims3().unwrap();
        let (keys, size) = (self.k.dim(1).unwrap(), channels / shape.heads);
        let number = format.dtype().size_in_bytes();
        let out = Buffer::empty(self.q.elem_count(), format);
        let whole = |x: &[&Tensor]| Buffer::tensor(&Tensor::cat(x, 2).unwrap(), format);
        // A cache holds what is not a number behind its keys.
        let cache = |x: &Tensor| {
            let rest = (x.zeros_like().unwrap().narrow(1, 0, 1).unwrap() / 0.0).unwrap();
            let rest = rest.broadcast_as((batch, self.capacity - keys, channels)).unwrap();
            Buffer::tensor(&Tensor::cat(&[x, &rest], 1).unwrap(), format)
        };
        let launch = Launch::of(kernel, format);
        let (buffers, stride) = if self.packed {
            (vec![whole(&[&self.q, &self.k, &self.v])], 3 * channels)
        } else {
            (vec![whole(&[&self.q]), cache(&self.k), cache(&self.v)], channels)
        };
        let launch = if self.packed {
            (0..3).fold(launch, |launch, part| launch.within(&buffers[0], part * channels * number))
        } else {
            buffers.iter().fold(launch, Launch::buffer)
        };
        let whole_number = |number: usize| i32::try_from(number).unwrap();
        let real = shape.real_keys.map(|real| Buffer::of(&real.iter().map(|&n| whole_number(n)).collect::<Vec<_>>()));
        let causal = shape.causal.map(|causal| Buffer::of(&[whole_number(causal)]));
        let blocks = if kernel == "attention_few" { queries } else { queries.div_ceil(64) };
        launch
            .buffer(&out)
            .optional(real.as_ref())
            .optional(causal.as_ref())
            .int(queries)
            .int(keys)
            .int(self.capacity)
            .int(stride)
            .int(stride)
            .int(shape.heads)
            .int(size)
            .float((size as f32).powf(-0.5))
            .run([blocks, shape.heads, batch], [128, 1]);
        out.to_tensor(self.q.dims(), format)
    }

    fn check(&self, kernel: &str, shape: AttentionShape<'_>) {
        for format in FORMATS {
            let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| format.round(x));
            let expected = kernels::attention(&q, &k, &v, shape).unwrap();
            let case = format!("{kernel} of {:?} to {:?}, {shape:?}", q.dims(), k.dims());
            let tolerance = Tolerance { f32: 1e-5, scale: 1.0 };
            assert_close(&self.attend(kernel, shape, format), &expected, format, tolerance, &case);
        }
    }
}

#[test]
fn many_queries_equal_the_reference() {
    for (batch, queries, keys, heads, size) in [
        (1, 1, 1, 1, 1),
        (2, 3, 5, 2, 4),
        (3, 7, 7, 1, 33),
        (2, 17, 31, 3, 8),
        (1, 63, 65, 1, 32),
        (1, 64, 47, 1, 64),
        (1, 65, 97, 2, 16),
        (1, 5, 150, 1, 63),
        (2, 9, 49, 1, 128),
        (1, 2, 33, 1, 96),
    ] {
        let operands = Operands::separate(batch, queries, keys, heads * size, keys);
        let lengths: Vec<usize> = (0..batch).map(|row| (keys - row).max(1)).collect();
        for real_keys in [None, Some(&lengths[..])] {
            operands.check("attention", AttentionShape { heads, real_keys, causal: None });
        }
    }
}

#[test]
fn few_queries_equal_the_reference() {
    for (batch, queries, keys, heads, size) in [
        (1, 1, 1, 1, 1),
        (2, 3, 5, 2, 4),
        (1, 1, 15, 1, 33),
        (2, 2, 16, 1, 64),
        (3, 1, 17, 2, 32),
        (1, 8, 65, 1, 128),
        (1, 3, 130, 2, 63),
        (1, 1, 31, 1, 65),
    ] {
        let operands = Operands::separate(batch, queries, keys, heads * size, keys + 3);
        let lengths: Vec<usize> = (0..batch).map(|row| (keys - row).max(1)).collect();
        for real_keys in [None, Some(&lengths[..])] {
            operands.check("attention_few", AttentionShape { heads, real_keys, causal: None });
        }
    }
}

#[test]
fn causal_queries_see_no_key_after_their_own() {
    for kernel in ["attention", "attention_few"] {
        for (batch, queries, before, size) in
            [(1, 1, 0, 8), (2, 5, 3, 32), (1, 4, 16, 33), (1, 70, 0, 4), (1, 3, 100, 64)]
        {
            // Keys that nothing has been written to yet lie behind.
            let operands = Operands::separate(batch, queries, before + queries, 2 * size, before + queries + 9);
            operands.check(kernel, AttentionShape { heads: 2, real_keys: None, causal: Some(before) });
        }
    }
}

#[test]
fn parts_of_a_packed_tensor_are_read_where_they_are() {
    for (tokens, heads, size) in [(1, 1, 3), (5, 2, 8), (66, 2, 32), (9, 3, 7)] {
        for kernel in ["attention", "attention_few"] {
            let shape = AttentionShape { heads, real_keys: None, causal: None };
            Operands::packed(2, tokens, heads * size).check(kernel, shape);
        }
    }
}
