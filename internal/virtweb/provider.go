package virtweb

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"strings"

	"drydock.dev/drydock/internal/web"
	"drydock.dev/drydock/internal/web/openid"
)

// openID returns the provider of the mounted folder, or nil if there is none.
func (o options) openID() (web.IdentityProvider, error) {
	issuer, err := o.providersWord("issuer")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if address, err := url.Parse(issuer); err != nil || address.Scheme != "https" || address.Host == "" || address.RawQuery != "" || address.Fragment != "" {
		return nil, fmt.Errorf("the issuer %q of the identity provider is no address of https", issuer)
	}
	id, err := o.providersWord("client-id")
	if err != nil {
		return nil, err
	}
	secret, err := o.providersWord("client-secret")
	if err != nil {
		return nil, err
	}
	scopes, err := o.providersWord("scopes")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	trusted, err := o.providersAuthority()
	if err != nil {
		return nil, err
	}
	return openid.New(openid.Config{
		Issuer: issuer, ClientID: id, ClientSecret: secret, Scopes: strings.Fields(scopes), Redirect: o.origin + web.EndPath, Transport: transport(trusted),
	}), nil
}

func (o options) providersWord(name string) (string, error) {
	text, err := readBounded(filepath.Join(o.provider, name))
	if err != nil {
		return "", fmt.Errorf("reading the %s of the identity provider: %w", name, err)
	}
	word := strings.TrimSpace(string(text))
	if word == "" {
		return "", fmt.Errorf("the %s of the identity provider is empty: fill it, or remove it", name)
	}
	return word, nil
}

// providersAuthority returns the certificates that the provider's is checked by, or nil for those of the system.
func (o options) providersAuthority() (*x509.CertPool, error) {
	text, err := readBounded(filepath.Join(o.provider, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the authority of the identity provider: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return nil, errors.New("reading the authority of the identity provider: ca.crt has no certificate")
	}
	return trusted, nil
}
