//! The `tapline` program: reads the command line, does what it says, and turns the outcome into an exit code.

use std::process::ExitCode;

use tapline::cli;

fn main() -> ExitCode {
    let invocation = match cli::parse(std::env::args_os()) {
        Ok(invocation) => invocation,
        Err(failure) => return failure.report(),
    };
    if let Some(threads) = invocation.threads() {
        #[expect(
            unsafe_code,
            reason = "rayon and Candle both size their pools by this variable and share no other setting"
        )]
        // SAFETY: no other thread exists yet that could read or write the environment meanwhile: none has been started here,
        // and reading the command line starts none.
        unsafe {
            std::env::set_var(cli::THREADS_VARIABLE, threads.to_string());
        }
    }
    match invocation.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
