//! The sentence a model was trained to be asked in.

use super::PromptError;

/// Turns a caller's words into the text that is tokenised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    prompt: String,
    lowercase: bool,
}

/// Bytes of a command beyond which it is refused before any work is done on it. No prompt of any model comes near.
pub const MAX_COMMAND_BYTES: usize = 8 * 1024;

impl Template {
    /// A template in which `{command}` stands for the caller's words; `lowercase` applies to the whole.
    #[must_use]
    pub fn new(prompt: impl Into<String>, lowercase: bool) -> Self {
        Self { prompt: prompt.into(), lowercase }
    }

    /// The whole prompt for `command`.
    ///
    /// White space is what Python's `str.strip` takes it to be, since that is what the models were trained behind.
    ///
    /// # Errors
    /// [`PromptError::EmptyCommand`] for nothing but white space; [`PromptError::CommandTooLarge`] for more bytes than any
    /// model could take, without tokenising them.
    pub fn render(&self, command: &str) -> Result<String, PromptError> {
        let command = command.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
        if command.is_empty() {
            return Err(PromptError::EmptyCommand);
        }
        if command.len() > MAX_COMMAND_BYTES {
            return Err(PromptError::CommandTooLarge { bytes: command.len(), limit: MAX_COMMAND_BYTES });
        }
        let prompt = self.prompt.replace("{command}", command);
        Ok(if self.lowercase { prompt.to_lowercase() } else { prompt })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_then_fills_in_then_lowers() {
        let ask = Template::new("What to do? {command}", true);
        assert_eq!(ask.render(" \u{1c}Click OK\n").unwrap(), "what to do? click ok");
        assert_eq!(Template::new("{command}", false).render("w17 W4").unwrap(), "w17 W4");
    }

    #[test]
    fn empty_and_huge_commands_are_refused() {
        let plain = Template::new("{command}", false);
        for empty in ["", "   ", "\u{1f}\n"] {
            assert_eq!(plain.render(empty), Err(PromptError::EmptyCommand));
        }
        assert!(matches!(plain.render(&"x".repeat(10_000)), Err(PromptError::CommandTooLarge { .. })));
    }
}
