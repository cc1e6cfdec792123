package collector

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A real engine behind a stand-in for the instance manager's proxy, over mutual TLS; then
// the manager's certificate expires.
func TestEngineThroughProxy(t *testing.T) {
	l := newLab(t, 2)
	dir := t.TempDir()
	authority := newAuthority(t, dir)
	authority.issue(t, dir, time.Now().Add(time.Hour))
	config, err := TLSFrom(dir)
	if err != nil {
		t.Fatal(err)
	}
	manager := filepath.Join(t.TempDir(), "manager")
	if err := os.Mkdir(manager, 0o700); err != nil {
		t.Fatal(err)
	}
	authority.issue(t, manager, time.Now().Add(time.Hour))
	pool := x509.NewCertPool()
	pool.AddCert(authority.cert)
	f := startFake(t, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return tlsFiles(manager).pair() }})
	f.forward = true

	target := l.target()
	target.Manager = f.address
	w := exporterWithTLS(t, quick, config, target)
	up := fmt.Sprintf("plumbline_longhorn_engine_up{volume=%q}", l.Name)
	healthy := fmt.Sprintf("plumbline_volume_healthy_replicas{backend=%q,volume=%q}", BackendV1, l.Name)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		return s.want(map[string]float64{up: 1, healthy: 2,
			fmt.Sprintf("plumbline_longhorn_engine_size_bytes{volume=%q}", l.Name): rig.VolumeSize})
	})

	authority.issue(t, manager, time.Now().Add(-time.Minute))
	w.fleet.Set(t.Context(), nil) // ends the connection; the next one meets the expired certificate
	w.fleet.Set(t.Context(), []Target{target})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		if s[fmt.Sprintf("plumbline_longhorn_poll_errors_total{reason=%q,volume=%q}", "tls", l.Name)] == 0 {
			return fmt.Errorf("the expired certificate is not counted")
		}
		return s.want(map[string]float64{up: 0, healthy: math.NaN()})
	})
	authority.issue(t, manager, time.Now().Add(time.Hour))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		return s.want(map[string]float64{up: 1, healthy: 2})
	})
}

func TestTLSDirectoryIsChecked(t *testing.T) {
	dir := t.TempDir()
	if _, err := TLSFrom(dir); err == nil {
		t.Error("an empty directory is accepted")
	}
	authority := newAuthority(t, dir)
	authority.issue(t, dir, time.Now().Add(time.Hour))
	if _, err := TLSFrom(dir); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := TLSFrom(dir); err == nil {
		t.Error("a file without a certificate is accepted as authority")
	}
}

// authority issues certificates for the name that Longhorn's components share.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "ca.crt"), "CERTIFICATE", der)
	return &authority{cert, key}
}

func (a *authority) issue(t *testing.T, dir string, until time.Time) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{managerName},
		NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, "tls.crt"), "CERTIFICATE", der)
	writePEM(t, filepath.Join(dir, "tls.key"), "EC PRIVATE KEY", private)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
