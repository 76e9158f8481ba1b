//! Around every request: its id, the log line, and a net for panics. It looks at no body.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::error::{ApiError, Code, Fault};
use super::request_id::RequestId;

/// The outermost layer of the router.
pub(super) async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = RequestId::of(request.headers());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = caught(next.run(request))
        .await
        .unwrap_or_else(|panic| ApiError::internal(format!("a handler panicked: {panic}")).into_response());

    let (status, took) = (response.status().as_u16(), started.elapsed());
    match response.extensions_mut().remove::<Fault>() {
        // Faults of the server are told here and nowhere else, so that each has one line, with the id the caller has.
        Some(Fault { code: code @ (Code::Internal | Code::EngineFailed), cause }) => {
            let code = code.as_str();
            tracing::error!(request_id = %id, %method, path, status, code, cause, ?took, "request failed");
        }
        Some(Fault { code, cause }) => {
            tracing::debug!(request_id = %id, %method, path, status, code = code.as_str(), cause, ?took, "request refused");
        }
        None => tracing::debug!(request_id = %id, %method, path, status, ?took, "request answered"),
    }
    response.headers_mut().insert(RequestId::HEADER, id.into_header());
    if app.is_leaving() {
        // The caller's next request then opens a connection, which a balancer sends elsewhere.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The future's output, or the message of its panic: one request's fault must not cost the others on its connection.
async fn caught<F: Future>(future: F) -> Result<F::Output, String> {
    let mut future = Box::pin(future);
    std::future::poll_fn(move |context| {
        // The future is dropped after a panic and never polled again, so nothing half-changed is seen.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(Err(text.unwrap_or_else(|| "without a message".to_owned())))
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_its_message() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let panics = async {
            tokio::task::yield_now().await;
            panic!("on {}", "purpose")
        };
        assert_eq!(
            caught::<_>(async {
                let () = panics.await;
            })
            .await,
            Err("on purpose".to_owned())
        );
    }
}
