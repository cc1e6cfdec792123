package collector

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// managerName is the name in the certificate that Longhorn's instance managers and their callers share
// (longhorn-instance-manager app/cmd/start.go). It is the same in every namespace: managers and Longhorn's own clients
// have it as a constant.
const managerName = "longhorn-backend.longhorn-system"

// TLSFrom returns a configuration for mutual TLS with ca.crt, tls.crt and tls.key in dir.
// The files are read at each connection, so that renewed ones are used without a restart.
func TLSFrom(dir string) (*tls.Config, error) {
	f := tlsFiles(dir)
	if _, err := f.pair(); err != nil {
		return nil, err
	}
	if _, err := f.authorities(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           managerName,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair() },
		// The library would verify against authorities read once; verify does it with fresh ones.
		InsecureSkipVerify: true,
		VerifyConnection:   f.verify,
	}, nil
}

type tlsFiles string

func (f tlsFiles) pair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(string(f), "tls.crt"), filepath.Join(string(f), "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &pair, nil
}

func (f tlsFiles) authorities() (*x509.CertPool, error) {
	path := filepath.Join(string(f), "ca.crt")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("authorities: no certificate in %s", path)
	}
	return pool, nil
}

func (f tlsFiles) verify(state tls.ConnectionState) error {
	roots, err := f.authorities()
	if err != nil {
		return err
	}
	if len(state.PeerCertificates) == 0 {
		return errors.New("the instance manager shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: state.ServerName})
	return err
}
