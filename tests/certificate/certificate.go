// Package certificate makes certificates for database servers of tests.
package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Files are what Write makes, by PostgreSQL's usual names: the certificate and its key.
const (
	File = "server.crt"
	Key  = "server.key"
)

// Write puts a certificate that is signed by itself, and its key, into a folder, for the folder's owner. It holds for
// an hour.
func Write(folder string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	for name, block := range map[string]*pem.Block{
		File: {Type: "CERTIFICATE", Bytes: certificate}, Key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		path := filepath.Join(folder, name)
		if err := errors.Join(os.WriteFile(path, pem.EncodeToMemory(block), 0o600), os.Chown(path, int(owner.Uid), int(owner.Gid))); err != nil {
			return err
		}
	}
	return nil
}
