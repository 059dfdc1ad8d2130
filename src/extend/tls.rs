//! TLS towards an extender, as upstream sets it up.
//!
//! | configured | the server's certificate |
//! |---|---|
//! | `tlsConfig` with a CA | must be signed by that CA |
//! | `insecure`, or `enableHTTPS` without a CA | is not looked at |
//! | neither | must be signed by a CA of the system |
//!
//! Whether TLS is used at all is the URL's to say. Must never log a key.

use std::path::PathBuf;
use std::sync::Arc;

use hyper_rustls::{
    ConfigBuilderExt, FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder,
};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tracing::warn;

use crate::config::{Extender, ExtenderTls};

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("tlsConfig.{field}: {file}: {reason}; give a file that can be read", file = .file.display())]
    File {
        /// The field.
        field: &'static str,
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: std::io::Error,
    },
    /// What is there is not what it should be.
    #[error("tlsConfig.{field}: {reason}; give it as PEM")]
    Pem {
        /// The field.
        field: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// Two settings contradict each other. Upstream's words.
    #[error("tlsConfig: {0}")]
    Contradiction(&'static str),
    /// Certificate and key do not go together.
    #[error("tlsConfig: the client certificate cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The system has no certificates.
    #[error("no certificates of the system: {0}; give tlsConfig.caFile or tlsConfig.caData")]
    NoRoots(std::io::Error),
}

/// Connects by HTTP or HTTPS, as the URL says.
pub(super) fn connector(
    extender: &Extender,
    http: HttpConnector,
) -> Result<HttpsConnector<HttpConnector>, TlsError> {
    let tls = extender.tls_config.clone().unwrap_or_default();
    let config = config(&tls, extender.enable_https)?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    if tls.server_name.is_empty() {
        return Ok(builder.enable_http1().wrap_connector(http));
    }
    let name = ServerName::try_from(tls.server_name)
        .map_err(|e| TlsError::Pem { field: "serverName", reason: e.to_string() })?;
    let resolver = FixedServerNameResolver::new(name);
    Ok(builder.with_server_name_resolver(resolver).enable_http1().wrap_connector(http))
}

fn config(tls: &ExtenderTls, enable_https: bool) -> Result<ClientConfig, TlsError> {
    let ca = material("caFile", &tls.ca_file, "caData", &tls.ca_data)?;
    if tls.insecure && ca.is_some() {
        return Err(TlsError::Contradiction(
            "specifying a root certificates file with the insecure flag is not allowed",
        ));
    }
    let blind = tls.insecure || enable_https && ca.is_none();
    if blind {
        warn!("an extender's certificate is not checked: give tlsConfig.caFile or caData");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match ca {
        Some((field, pem)) => builder.with_root_certificates(roots(field, &pem)?),
        None if blind => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Blind(provider)))
        }
        // Without a URL that asks for TLS nobody will miss them.
        None => match builder.clone().with_native_roots() {
            Ok(builder) => builder,
            Err(_) if tls == &ExtenderTls::default() => {
                builder.with_root_certificates(RootCertStore::empty())
            }
            Err(error) => return Err(TlsError::NoRoots(error)),
        },
    };
    let cert = material("certFile", &tls.cert_file, "certData", &tls.cert_data)?;
    let key = material("keyFile", &tls.key_file, "keyData", &tls.key_data)?;
    match (cert, key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some((field, cert)), Some((key_field, key))) => {
            let chain = certificates(field, &cert)?;
            let key = PrivateKeyDer::from_pem_slice(&key)
                .map_err(|e| TlsError::Pem { field: key_field, reason: e.to_string() })?;
            Ok(builder.with_client_auth_cert(chain, key)?)
        }
        _ => Err(TlsError::Contradiction(
            "a client certificate needs a key, and a key a certificate",
        )),
    }
}

/// What a field or its file holds; the field wins, as upstream.
fn material(
    file_field: &'static str,
    file: &str,
    data_field: &'static str,
    data: &str,
) -> Result<Option<(&'static str, Vec<u8>)>, TlsError> {
    if !data.is_empty() {
        let pem = base64(data).ok_or_else(|| TlsError::Pem {
            field: data_field,
            reason: "it is not base64".to_owned(),
        })?;
        return Ok(Some((data_field, pem)));
    }
    if file.is_empty() {
        return Ok(None);
    }
    let read = std::fs::read(file);
    let pem =
        read.map_err(|reason| TlsError::File { field: file_field, file: file.into(), reason })?;
    Ok(Some((file_field, pem)))
}

fn certificates(field: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason: String| TlsError::Pem { field, reason };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|e| wrong(e.to_string()))?;
    if all.is_empty() { Err(wrong("it holds no certificate".to_owned())) } else { Ok(all) }
}

fn roots(field: &'static str, pem: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(field, pem)? {
        roots.add(certificate).map_err(|e| TlsError::Pem { field, reason: e.to_string() })?;
    }
    Ok(roots)
}

/// Go's standard encoding: padded, line breaks allowed.
fn base64(text: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let bytes: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\r' | b'\n')).collect();
    let end = bytes.iter().rposition(|b| *b != b'=').map_or(0, |last| last + 1);
    if !bytes.len().is_multiple_of(4) || bytes.len() - end > 2 {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    for chunk in bytes[..end].chunks(4) {
        let mut word = 0_u32;
        for byte in chunk {
            word = word << 6 | u32::from(value(*byte)?);
        }
        word <<= 6 * (4 - chunk.len());
        out.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

/// Takes whatever certificate it is shown, as configured.
#[derive(Debug)]
struct Blind(Arc<CryptoProvider>);

impl ServerCertVerifier for Blind {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_read_as_go_reads_it() {
        let cases: [(&str, Option<&[u8]>); 7] = [
            ("", Some(b"")),
            ("Zg==", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v\nYmFy", Some(b"foobar")),
            ("/+8=", Some(&[0xff, 0xef])),
            ("Zg", None),
            ("Z===", None),
        ];
        for (text, expected) in cases {
            assert_eq!(base64(text).as_deref(), expected, "{text:?}");
        }
    }
}
