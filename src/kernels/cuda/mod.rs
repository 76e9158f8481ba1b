//! What runs on NVIDIA GPUs: opening one, and everything that needs the driver's own interface.
//!
//! Each operation has a file that checks shapes and types, allocates the result without zeroing it, and puts the kernels of
//! `kernels/*.cu` on the device's stream (`launch.rs`); nothing waits for them. [`kernels`](super) comes here by itself for
//! tensors on a GPU. Operands must be contiguous where nothing else is said.
//!
//! The functions that end in `_into` write tensors that are there, and take what changes from step to step, such as
//! lengths, from tensors on the device: they are what a captured graph replays. Nothing can be said here about values
//! there: lengths must not be negative, and rows that are named must exist.

#![expect(unsafe_code, reason = "kernels take addresses and sizes")]

pub mod attention;
pub mod cache;
pub mod channel_attention;
pub mod convolution;
pub mod depthwise;
pub mod device;
mod driver;
pub mod elementwise;
pub mod embed;
pub mod graph;
pub mod image_tokens;
mod launch;
pub mod layer_norm;
pub mod linear;
mod loader;
pub mod location;
pub mod parity;
pub mod resize;
mod tokens;
pub mod upload;
pub mod window_attention;

pub use attention::{Lengths, attention, attention_into, attention_with};
pub use cache::{append_into, reorder_into};
pub use channel_attention::channel_attention;
pub use convolution::{convolution, patches};
pub use depthwise::depthwise_residual;
pub use elementwise::{add_to_each, finish, gelu};
pub use embed::{Tables, embed_into, place_into};
pub use image_tokens::image_tokens;
pub use layer_norm::{layer_norm, sum_norm};
pub use linear::{linear, linear_norm, mlp, norm_linear};
pub use loader::{LoadError, load};
pub use location::{Chosen, best_location, best_location_into, highest, highest_into};
pub use resize::Resizer;
pub use window_attention::window_attention;

/// count^-0.5, the scale of attention's products.
fn inverse_root(count: usize) -> f32 {
    (count as f32).powf(-0.5)
}
