//! What moves tokens: embeddings, caches, beams.

use candle_core::{Device, Tensor};

use super::library::{Buffer, Launch};
use super::{FORMATS, Format, ROUNDED, assert_close, random, values};

/// Shapes of (rows, tokens, channels).
const SHAPES: [(usize, usize, usize); 7] =
    [(1, 1, 1), (2, 3, 5), (1, 2, 4), (3, 7, 8), (2, 5, 33), (3, 4, 256), (1, 9, 1023)];

/// A number that no random tensor holds, to see what was left alone.
const UNTOUCHED: f32 = 42.0;

fn untouched(shape: &[usize]) -> Tensor {
    Tensor::full(UNTOUCHED, shape, &Device::Cpu).unwrap()
}

#[test]
fn words_stand_behind_the_image_with_their_positions() {
    for (rows, count, channels) in SHAPES {
        let (vocabulary, before, first) = (11, 3, 2);
        let (tokens, positions) =
            (random(&[vocabulary, channels], 1), random(&[2 + first + before + count, channels], 2));
        let ids: Vec<u32> = (0..rows * count).map(|i| u32::try_from(i * 7 % vocabulary).unwrap()).collect();
        let image = random(&[rows, before, channels], 3);
        let words = tokens.index_select(&Tensor::new(&ids[..], &Device::Cpu).unwrap(), 0).unwrap();
        let words = words.reshape((rows, count, channels)).unwrap();
        for format in FORMATS {
            let [tokens, positions, image, words] = [&tokens, &positions, &image, &words].map(|x| format.round(x));
            let at = |start: usize, count: usize| positions.narrow(0, start + 2, count).unwrap();
            for start in [None, Some(first)] {
                let out = Buffer::tensor(&untouched(&[rows, before + count + 1, channels]), format);
                let start_place = start.map(|start| Buffer::of(&[i32::try_from(start).unwrap()]));
                Launch::of("embed", format)
                    .buffer(&Buffer::of(&ids))
                    .buffer(&Buffer::tensor(&tokens, format))
                    .buffer(&Buffer::tensor(&positions, format))
                    .optional(start_place.as_ref())
                    .buffer(&out)
                    .int(count)
                    .int(channels)
                    .int(vocabulary)
                    .int(positions.dim(0).unwrap())
                    .int(before + count + 1)
                    .int(before)
                    .run([(count * channels).div_ceil(1024), rows, 1], [256, 1]);
                Launch::of("place", format)
                    .buffer(&Buffer::tensor(&image, format))
                    .buffer(&Buffer::tensor(&positions, format))
                    .buffer(&out)
                    .int(before)
                    .int(channels)
                    .int(before + count + 1)
                    .run([(before * channels).div_ceil(1024), rows, 1], [256, 1]);
                let placed = image.broadcast_add(&at(0, before)).unwrap();
                let embedded = words.broadcast_add(&at(start.unwrap_or(0) + before, count)).unwrap();
                let expected = Tensor::cat(&[&placed, &embedded, &untouched(&[rows, 1, channels])], 1).unwrap();
                let got = out.to_tensor(expected.dims(), format);
                assert_close(&got, &expected, format, ROUNDED, &format!("{rows} x {count} x {channels}"));
            }
        }
    }
}

#[test]
fn ids_and_positions_past_their_tables_read_the_last_row() {
    let (tokens, positions) = (random(&[3, 4], 1), random(&[3, 4], 2));
    let out = Buffer::empty(2 * 4, Format::F32);
    Launch::of("embed", Format::F32)
        .buffer(&Buffer::of(&[u32::MAX, 1]))
        .buffer(&Buffer::tensor(&tokens, Format::F32))
        .buffer(&Buffer::tensor(&positions, Format::F32))
        .optional(None)
        .buffer(&out)
        .int(2)
        .int(4)
        .int(3)
        .int(3)
        .int(2)
        .int(0)
        .run([1, 1, 1], [256, 1]);
    let rows =
        |tokens: &Tensor, which: [u32; 2]| tokens.index_select(&Tensor::new(&which, &Device::Cpu).unwrap(), 0).unwrap();
    let expected = (rows(&tokens, [2, 1]) + rows(&positions, [2, 2])).unwrap();
    assert_eq!(values(&out.to_tensor(&[2, 4], Format::F32)), values(&expected));
}

#[test]
fn new_keys_go_behind_the_old_ones_while_there_is_room() {
    for (rows, count, channels) in SHAPES {
        for (capacity, length, packed) in
            [(count + 3, 2, false), (count + 3, 2, true), (count + 1, 2, false), (count, 0, false)]
        {
            let stride = if packed { 3 * channels } else { channels };
            let (added, cache) = (random(&[rows, count, stride], 1), untouched(&[rows, capacity, channels]));
            let written = count.min(capacity - length);
            let new = added.narrow(2, 0, channels).unwrap().narrow(1, 0, written).unwrap();
            let (before, behind) = (
                cache.narrow(1, 0, length).unwrap(),
                cache.narrow(1, length + written, capacity - length - written).unwrap(),
            );
            let expected = Tensor::cat(&[&before, &new, &behind], 1).unwrap();
            for format in FORMATS {
                let out = Buffer::tensor(&cache, format);
                Launch::of("append", format)
                    .buffer(&Buffer::tensor(&added, format))
                    .buffer(&out)
                    .buffer(&Buffer::of(&[i32::try_from(length).unwrap()]))
                    .int(count)
                    .int(capacity)
                    .int(channels)
                    .int(stride)
                    .run([(count * channels).div_ceil(1024), rows, 1], [256, 1]);
                let got = out.to_tensor(expected.dims(), format);
                assert_eq!(
                    values(&got),
                    values(&format.round(&expected)),
                    "{rows} x {count} x {channels} in {format:?}"
                );
            }
        }
    }
}

#[test]
fn beams_take_what_their_parents_had() {
    for (rows, capacity, channels) in SHAPES {
        for length in [0, capacity / 2, capacity] {
            let (layers, room) = (2, rows + 1);
            let cache = random(&[layers, room, capacity, channels], 1);
            let from: Vec<u32> = (0..rows).map(|row| u32::try_from((row * 2 + 1) % room).unwrap()).collect();
            let chosen = cache.index_select(&Tensor::new(&from[..], &Device::Cpu).unwrap(), 1).unwrap();
            let mut expected = values(&untouched(&[layers, room, capacity, channels]));
            for (place, value) in values(&chosen).into_iter().enumerate() {
                let (layer, row, rest) = (
                    place / (rows * capacity * channels),
                    place / (capacity * channels) % rows,
                    place % (capacity * channels),
                );
                if rest < length * channels {
                    expected[(layer * room + row) * capacity * channels + rest] = value;
                }
            }
            let expected = Tensor::from_vec(expected, cache.dims(), &Device::Cpu).unwrap();
            for format in FORMATS {
                let out = Buffer::tensor(&untouched(cache.dims()), format);
                Launch::of("reorder", format)
                    .buffer(&Buffer::tensor(&cache, format))
                    .buffer(&out)
                    .buffer(&Buffer::of(&from))
                    .buffer(&Buffer::of(&[i32::try_from(length).unwrap()]))
                    .int(room)
                    .int(capacity)
                    .int(channels)
                    .run([(capacity * channels).div_ceil(1024), rows, layers], [256, 1]);
                let got = out.to_tensor(cache.dims(), format);
                assert_eq!(
                    values(&got),
                    values(&format.round(&expected)),
                    "{rows} x {capacity} x {channels} in {format:?}"
                );
            }
        }
    }
}
