// Package trust has the TLS settings of the clients: one version, and an authority of the tests.
package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

func Config(version, authority string) (*tls.Config, error) {
	text, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, errors.New("no certificate in " + authority)
	}
	number := uint16(tls.VersionTLS13)
	if version == "1.2" {
		number = tls.VersionTLS12
	}
	return &tls.Config{RootCAs: pool, MinVersion: number, MaxVersion: number}, nil
}
