//! One HTTP/1 connection: how long it may idle, and how it ends when the server does.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tower::ServiceBuilder;

use super::App;
use super::drain::Phase;

/// How long a connection with nothing but a part of a request's head is kept once the server drains.
const HALF_A_HEAD: Duration = Duration::from_secs(1);

/// Requests of one connection, from the end of their head until their handler has answered or was dropped.
#[derive(Debug, Default)]
struct Activity {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

struct Active(Arc<Activity>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// Serves a connection until its client leaves or the server drains and its last request is answered.
pub(super) async fn serve(stream: TcpStream, app: App, router: Router) {
    // Answers are one small write each; waiting for more to send would only add 40 ms.
    let _unsupported = stream.set_nodelay(true);
    let activity = Arc::new(Activity::default());
    let service = ServiceBuilder::new()
        .map_future({
            let activity = Arc::clone(&activity);
            move |answer| {
                activity.begun.fetch_add(1, Ordering::AcqRel);
                let active = Active(Arc::clone(&activity));
                async move {
                    let _active = active;
                    answer.await
                }
            }
        })
        .service(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(app.options().head_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = pin!(connection);
    tokio::select! {
        // Clients leave in all kinds of ways, none of which is our fault.
        _left = connection.as_mut() => return,
        () = app.drain().reached(Phase::Draining) => {}
    }
    // Ends an idle connection at once, and any other after its present request.
    connection.as_mut().graceful_shutdown();
    let begun = activity.begun.load(Ordering::Acquire);
    if activity.ended.load(Ordering::Acquire) == begun {
        let ended = tokio::time::timeout(HALF_A_HEAD, connection.as_mut()).await.is_ok();
        if ended || activity.begun.load(Ordering::Acquire) == begun {
            return;
        }
    }
    let _left = connection.await;
}
