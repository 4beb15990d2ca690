//! The public handle of a server.

use std::{
    io,
    sync::{Arc, PoisonError},
    time::Duration,
};

use atoll_apimachinery::{
    discovery::{Definitions, Documents, Version},
    raw::RawApi,
    read_only::VirtualResource,
    serve,
};
use atoll_http::{connections::Limits, serve::Settings};

use tokio_util::sync::CancellationToken;

use crate::{
    controllers,
    core::Core,
    http::Service,
    kubelets::Kubelets,
    options::{OpenError, Options},
};

/// Limits of the listener.
const SETTINGS: Settings = Settings {
    // Every watch of a client without HTTP/2 is a connection. On loopback all clients have one address.
    connections: Limits { total: 4096, each: 4096, grace: Duration::from_secs(10) },
    head: Duration::from_secs(30),
    lifetime: None,
    // Watches end at once and other requests take milliseconds; the rest are clients that do not read.
    stop: Duration::from_secs(2),
};

/// A Kubernetes API server in this process. Clones share everything; the data file is released when the last
/// clone, client and watch are gone.
#[derive(Clone)]
pub struct Server {
    core: Arc<Core>,
    documents: Arc<Documents>,
}

impl Server {
    /// Opens the store, creates the system namespaces, serves the stored CRDs.
    ///
    /// # Errors
    /// The data file is in use, unreadable, or has another format.
    pub fn open(options: Options) -> Result<Server, OpenError> {
        let version = options.version.clone();
        Ok(Self::of(Core::open(options)?, version))
    }

    /// A second server, in memory, with this one's current objects: a backup that can be started later. The two are
    /// independent from then on; the copy assigns different uids if its seed differs.
    ///
    /// # Errors
    /// As [`Server::open`].
    pub fn copy(&self, options: Options) -> Result<Server, OpenError> {
        let version = options.version.clone();
        Ok(Self::of(Core::over(self.core.store.copy(), options)?, version))
    }

    fn of(core: Arc<Core>, version: Version) -> Self {
        Server { core, documents: Arc::new(Documents::new(version, Definitions::All)) }
    }

    /// The server as a tower service. Requests without an [`atoll_apimachinery::identity::Identity`] in their extensions come from this
    /// process and may do everything.
    pub fn service(&self) -> Service {
        Service::new(self.core.clone(), self.documents.clone())
    }

    /// A client without sockets. Must be called inside a tokio runtime, like every kube client.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// Serves a read-only kind whose objects are stored elsewhere. Mounting the kind again replaces it; built-in kinds
    /// of the same name take precedence.
    pub fn mount(&self, api: Arc<dyn VirtualResource>) {
        self.core.catalog.mount(api);
    }

    /// Serves an API whose requests are passed on.
    pub fn mount_raw(&self, api: Arc<dyn RawApi>) {
        self.documents.list_raw(api.names());
        self.core.raw.write().unwrap_or_else(PoisonError::into_inner).push(api);
    }

    /// Lets these kubelets answer for logs and sessions of pods, in place of those before.
    pub fn set_kubelets(&self, kubelets: Arc<dyn Kubelets>) {
        *self.core.kubelets.write().unwrap_or_else(PoisonError::into_inner) = Some(kubelets);
    }

    /// Runs namespace deletion, garbage collection (if enabled), the cleanup of deleted CRDs, default ServiceAccounts
    /// and the expiry of Events, until the token is cancelled.
    pub async fn run_controllers(&self, token: CancellationToken) {
        controllers::run(self.core.clone(), token).await;
    }

    /// Serves HTTPS (HTTP/1.1 and HTTP/2) on a listener until the token is cancelled, then ends watches and
    /// waits a bounded time for other requests.
    ///
    /// # Errors
    /// The listener's address cannot be read; connections' errors are logged.
    pub async fn serve(
        self,
        listener: tokio::net::TcpListener,
        tls: Arc<rustls::ServerConfig>,
        token: CancellationToken,
    ) -> io::Result<()> {
        serve::serve(listener, tls, SETTINGS, self.service(), token).await
    }
}
