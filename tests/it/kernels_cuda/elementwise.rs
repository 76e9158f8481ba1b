//! Biases, GELU and residuals after a product.

use candle_core::Tensor;
use tapline::kernels;

use super::library::{Buffer, Launch};
use super::{FORMATS, Format, ROUNDED, assert_close, random};

const SHAPES: [(usize, usize); 10] =
    [(1, 1), (1, 2), (2, 3), (3, 1), (5, 4), (7, 31), (3, 64), (2, 513), (1, 1023), (3, 1024)];

/// x after a kernel that works in place.
fn after(kernel: &str, x: &Tensor, others: &[Option<&Tensor>], format: Format) -> Tensor {
    let (place, count) = (Buffer::tensor(x, format), x.elem_count());
    let others: Vec<Option<Buffer>> = others.iter().map(|other| other.map(|x| Buffer::tensor(x, format))).collect();
    let launch = Launch::of(kernel, format).buffer(&place);
    others
        .iter()
        .fold(launch, |launch, other| launch.optional(other.as_ref()))
        .long(count)
        .int(x.dim(1).unwrap())
        .run([count.div_ceil(1024), 1, 1], [256, 1]);
    place.to_tensor(x.dims(), format)
}

#[test]
fn biases_and_residuals_are_added() {
    for (rows, channels) in SHAPES {
        let (x, bias) = (random(&[rows, channels], 1), random(&[channels], 2));
        let residual = random(&[rows, channels], 3);
        for format in FORMATS {
            let [x, bias, residual] = [&x, &bias, &residual].map(|x| format.round(x));
            let case = format!("{rows} x {channels}");
            let sum = x.broadcast_add(&bias).unwrap();
            assert_close(&after("bias", &x, &[Some(&bias)], format), &sum, format, ROUNDED, &case);
            let got = after("bias_residual", &x, &[Some(&bias), Some(&residual)], format);
            assert_close(&got, &(sum + &residual).unwrap(), format, ROUNDED, &case);
            let got = after("bias_residual", &x, &[None, Some(&residual)], format);
            assert_close(&got, &(&x + &residual).unwrap(), format, ROUNDED, &case);
        }
    }
}

#[test]
fn gelu_equals_the_reference() {
    for (rows, channels) in SHAPES {
        let (x, bias) = ((random(&[rows, channels], 1) * 6.0).unwrap(), random(&[channels], 2));
        for format in FORMATS {
            let [x, bias] = [&x, &bias].map(|x| format.round(x));
            let case = format!("{rows} x {channels}");
            let expected = kernels::gelu(&x.broadcast_add(&bias).unwrap()).unwrap();
            assert_close(&after("bias_gelu", &x, &[Some(&bias)], format), &expected, format, ROUNDED, &case);
            let expected = kernels::gelu(&x).unwrap();
            assert_close(&after("bias_gelu", &x, &[None], format), &expected, format, ROUNDED, &case);
        }
    }
}

#[test]
fn numbers_that_packs_do_not_fit_are_taken_one_by_one() {
    // One number further on: channels would allow packs, the place does not.
    let (rows, channels) = (3, 8);
    let (x, bias) = (random(&[rows * channels + 1], 1), random(&[channels], 2));
    for format in FORMATS {
        let place = Buffer::tensor(&x, format);
        Launch::of("bias", format)
            .within(&place, format.dtype().size_in_bytes())
            .buffer(&Buffer::tensor(&bias, format))
            .long(rows * channels)
            .int(channels)
            .run([1, 1, 1], [256, 1]);
        let got = place.to_tensor(&[rows * channels + 1], format);
        let x = format.round(&x);
        assert_eq!(super::values(&got)[0], super::values(&x)[0], "the number before");
        let sum = x.narrow(0, 1, rows * channels).unwrap().reshape((rows, channels)).unwrap();
        let sum = sum.broadcast_add(&format.round(&bias)).unwrap();
        let got = got.narrow(0, 1, rows * channels).unwrap().reshape((rows, channels)).unwrap();
        assert_close(&got, &sum, format, ROUNDED, "one number further on");
    }
}
