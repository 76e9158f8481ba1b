//! From a command to a prompt's ids, and from an answer's ids back to a place. It knows text and ids, no tensors.

pub mod answer;
pub mod template;
pub mod tokenizer;

pub use answer::{AnswerForm, Form, Located};
pub use template::Template;
pub use tokenizer::{LocationTokens, Tokenizer, TokenizerError};

/// Why a command cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromptError {
    /// Nothing but white space. Say what to find.
    #[error("the command is empty")]
    EmptyCommand,
    /// The prompt has more ids than the model has room for. Say it shorter.
    #[error("the command makes a prompt of {tokens} tokens, more than the model's {limit}")]
    CommandTooLong {
        /// Ids of the whole prompt.
        tokens: usize,
        /// Most ids the model takes.
        limit: usize,
    },
    /// More bytes than any model could take; not even tokenised. Say it shorter.
    #[error("the command has {bytes} bytes, more than the limit of {limit}")]
    CommandTooLarge {
        /// Bytes of the command.
        bytes: usize,
        /// Most bytes taken.
        limit: usize,
    },
    /// The tokenizer failed on this text.
    #[error("the command cannot be tokenised: {message}")]
    Tokenizer {
        /// Why.
        message: String,
    },
}
