//! The test cluster's own certificate authority.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    pub(crate) der: Vec<u8>,
}

/// Where a certificate and its key were written.
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "muster-test-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        Ok(Self {
            pem: certificate.pem(),
            der: certificate.der().to_vec(),
            issuer: Issuer::new(params, key),
        })
    }

    /// A serving certificate for loopback.
    pub(crate) fn serving(&self, dir: &Path) -> Result<Pair> {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"];
        let mut params = CertificateParams::new(names.map(String::from).to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "localhost");
        self.issue(params, ExtendedKeyUsagePurpose::ServerAuth, dir)
    }

    /// A client certificate: Kubernetes takes the user from the common name
    /// and the groups from the organisations.
    pub(crate) fn client(&self, user: &str, groups: &[&str], dir: &Path) -> Result<Pair> {
        // rcgen keeps one value per attribute type; the second organisation
        // goes in under the same OID spelt out. More would need another way.
        ensure!(groups.len() <= 2, "at most two groups per identity, not {groups:?}");
        let mut params = CertificateParams::default();
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, user);
        let organisation = [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])];
        for (kind, group) in organisation.into_iter().zip(groups) {
            name.push(kind, *group);
        }
        params.distinguished_name = name;
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth, dir)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
        dir: &Path,
    ) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let pair = Pair { cert: dir.join("tls.crt"), key: dir.join("tls.key") };
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        fs::write(&pair.cert, certificate.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}

/// Writes the key pair that signs service account tokens: (private, public).
pub(crate) fn service_account_keys(dir: &Path) -> Result<Pair> {
    let key = KeyPair::generate()?;
    let pair = Pair { key: dir.join("service-account.key"), cert: dir.join("service-account.pub") };
    fs::write(&pair.key, key.serialize_pem())?;
    fs::write(&pair.cert, key.public_key_pem())?;
    Ok(pair)
}
