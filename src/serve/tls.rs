//! The certificate of the server.
//!
//! Owns: reading it from files, again whenever they change (certificates are
//! renewed under a running process), or making one for itself. Must never write
//! a key anywhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

/// How often files are looked at again, at most.
const RELOAD: Duration = Duration::from_secs(30);
const HTTP_1_1: &[u8] = b"http/1.1";

/// Where certificate and key are, as PEM.
#[derive(Clone, Debug)]
pub(super) struct TlsFiles {
    /// The certificate and its chain.
    pub(super) certificate: PathBuf,
    /// The private key.
    pub(super) key: PathBuf,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("{file}: {reason}", file = .file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The certificate and the key cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// No certificate could be made.
    #[error("no certificate could be made: {0}")]
    Generate(#[from] rcgen::Error),
}

/// The server's side of TLS 1.2 and 1.3. Without files it makes a certificate
/// for these names.
pub(super) fn config(
    files: Option<TlsFiles>,
    names: Vec<String>,
) -> Result<ServerConfig, TlsError> {
    let resolver: Arc<dyn ResolvesServerCert> = match files {
        Some(files) => Arc::new(Files::new(files)?),
        None => Arc::new(Fixed(self_signed(names)?)),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![HTTP_1_1.to_vec()];
    Ok(config)
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let provider = rustls::crypto::ring::default_provider();
    Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider)?))
}

fn self_signed(names: Vec<String>) -> Result<Arc<CertifiedKey>, TlsError> {
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    certified(vec![made.cert.der().clone()], key.into())
}

#[derive(Debug)]
struct Fixed(Arc<CertifiedKey>);

impl ResolvesServerCert for Fixed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

/// A certificate that follows its files.
#[derive(Debug)]
struct Files {
    files: TlsFiles,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    current: Arc<CertifiedKey>,
    modified: Modified,
    look_again: Instant,
}

/// When both files were last written.
type Modified = [Option<SystemTime>; 2];

impl Files {
    fn new(files: TlsFiles) -> Result<Self, TlsError> {
        let modified = modified(&files);
        let current = load(&files)?;
        let look_again = Instant::now() + RELOAD;
        Ok(Self { files, state: Mutex::new(State { current, modified, look_again }) })
    }

    /// The certificate in force, from the files if they have changed. If they
    /// cannot be used the old one stays.
    fn current(&self, now: Instant) -> Arc<CertifiedKey> {
        let mut state = self.state.lock();
        if now >= state.look_again {
            state.look_again = now + RELOAD;
            let modified = modified(&self.files);
            if modified != state.modified {
                match load(&self.files) {
                    Ok(loaded) => {
                        tracing::info!(file = %self.files.certificate.display(), "new certificate");
                        state.current = loaded;
                        state.modified = modified;
                    }
                    Err(error) => tracing::warn!(%error, "the old certificate stays"),
                }
            }
        }
        Arc::clone(&state.current)
    }
}

impl ResolvesServerCert for Files {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current(Instant::now()))
    }
}

fn modified(files: &TlsFiles) -> Modified {
    let when = |path: &Path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok();
    [when(&files.certificate), when(&files.key)]
}

fn load(files: &TlsFiles) -> Result<Arc<CertifiedKey>, TlsError> {
    let wrong = |file: &Path, reason: String| TlsError::File { file: file.to_owned(), reason };
    let chain: Vec<_> = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect)
        .map_err(|error| wrong(&files.certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong(&files.certificate, "has no certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| wrong(&files.key, error.to_string()))?;
    certified(chain, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(files: &TlsFiles, name: &str) -> Vec<u8> {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().to_vec()
    }

    #[test]
    fn follows_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let files =
            TlsFiles { certificate: dir.path().join("tls.crt"), key: dir.path().join("tls.key") };
        let error = Files::new(files.clone()).unwrap_err().to_string();
        assert!(error.starts_with(&files.certificate.display().to_string()), "{error}");

        let first = write(&files, "a");
        let follower = Files::new(files.clone()).unwrap();
        let shown = |now| follower.current(now).cert[0].to_vec();
        let start = Instant::now();
        assert_eq!(shown(start), first);

        // Half of a renewal: the key does not fit, the old pair stays.
        let later = SystemTime::now() + Duration::from_secs(5);
        let second = write(&files, "b");
        let key = std::fs::read(&files.key).unwrap();
        std::fs::write(&files.key, "nothing").unwrap();
        std::fs::File::options()
            .write(true)
            .open(&files.certificate)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert_eq!(shown(start + RELOAD), first);
        std::fs::write(&files.key, key).unwrap();
        assert_eq!(shown(start + RELOAD + Duration::from_secs(1)), first, "not looked at yet");
        assert_eq!(shown(start + 2 * RELOAD), second);
        assert_eq!(shown(start + 4 * RELOAD), second);
    }

    #[test]
    fn makes_one_for_itself() {
        let config = config(None, vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        assert_eq!(config.alpn_protocols, [b"http/1.1".to_vec()]);
    }
}
