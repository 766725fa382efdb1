// Package virtweb is virt-web: the web console in a cluster, for people who sign in with a token of their own. It owns the
// command, and the files that are mounted into its pod. It must not have rights of its own, or decide which requests pass:
// package web does.
package virtweb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/web"
	"drydock.dev/drydock/internal/web/assets"
)

type options struct {
	address, origin, namespace string
	upstream, authority        string
	certificates, sessionKey   string
	provider                   string
}

// NewCommand returns the command virt web.
func NewCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "web",
		Short: "The web console, for people who sign in with a token of their own",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.address, "address", ":8443", "address to serve on, by TLS")
	cmd.Flags().StringVar(&o.origin, "origin", "", "the address in people's browsers, such as https://vms.example.com")
	cmd.Flags().StringVar(&o.namespace, "namespace", "default", "the namespace that is shown first")
	cmd.Flags().StringVar(&o.upstream, "api-server", "https://kubernetes.default.svc", "address of the API server")
	cmd.Flags().StringVar(&o.authority, "api-server-authority", "/etc/virt-web/authority/ca.crt", "file of the certificates that the API server's is checked by")
	cmd.Flags().StringVar(&o.certificates, "certificates", "/etc/virt-web/tls", "folder with the server's tls.crt and tls.key")
	cmd.Flags().StringVar(&o.sessionKey, "session-key", "/etc/virt-web/session/key", "file of the key that encrypts sessions, the same in all replicas")
	cmd.Flags().StringVar(&o.provider, "openid", "/etc/virt-web/openid", "folder with an OpenID Connect provider's issuer, client-id and client-secret, and if needed scopes and ca.crt; without it people sign in with a token only")
	return cmd
}

func run(ctx context.Context, o options) error {
	settings, err := o.settings()
	if err != nil {
		return err
	}
	console, err := web.New(ctx, settings)
	if errors.Is(err, web.ErrNoPages) {
		return errors.New("this image was built without the pages of the web console: use the one of a release, or `make web` before `make images`")
	}
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.address)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", o.address, err)
	}
	return console.Serve(listener)
}

func (o options) settings() (web.Options, error) {
	upstream, err := url.Parse(o.upstream)
	if err != nil || upstream.Scheme != "https" || upstream.Host == "" {
		return web.Options{}, fmt.Errorf("--api-server %q is no address of https", o.upstream)
	}
	authority, err := readBounded(o.authority)
	if err != nil {
		return web.Options{}, fmt.Errorf("reading the authority of the API server: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(authority) {
		return web.Options{}, fmt.Errorf("reading the authority of the API server: %s has no certificate", o.authority)
	}
	key, err := readBounded(o.sessionKey)
	if err != nil {
		return web.Options{}, fmt.Errorf("reading the key of sessions: %w", err)
	}
	serving := &pair{folder: o.certificates, now: time.Now}
	if _, err := serving.current(nil); err != nil {
		return web.Options{}, err
	}
	provider, err := o.openID()
	if err != nil {
		return web.Options{}, err
	}
	return web.Options{
		Origin: o.origin, Upstream: upstream, Transport: transport(trusted), Pages: assets.Files(),
		About:  web.About{Namespace: o.namespace, Server: o.upstream, Version: version.Version},
		SignIn: &web.SignIn{Key: key, Certificate: serving.current, Provider: provider},
	}, nil
}

// transport speaks HTTP/1.1, from which WebSockets are upgraded, and has no credentials.
func transport(trusted *x509.CertPool) http.RoundTripper {
	const patience, connections = 10 * time.Second, 64
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, NextProtos: []string{"http/1.1"}},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		TLSHandshakeTimeout: patience, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: connections,
	}
}

const maxFile = 1 << 20

func readBounded(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFile)
	}
	return text, err
}

const lookEvery = 5 * time.Second

// pair is the server's certificate and key, as the kubelet mounts them. While they are being replaced, the previous ones
// stay.
type pair struct {
	folder string
	now    func() time.Time

	mu     sync.Mutex
	looked time.Time
	loaded *tls.Certificate
}

func (p *pair) current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.loaded != nil && now.Sub(p.looked) < lookEvery {
		return p.loaded, nil
	}
	p.looked = now
	found, err := tls.LoadX509KeyPair(filepath.Join(p.folder, "tls.crt"), filepath.Join(p.folder, "tls.key"))
	switch {
	case err == nil:
		p.loaded = &found
	case p.loaded == nil:
		return nil, fmt.Errorf("reading the certificate of the web console: %w", err)
	}
	return p.loaded, nil
}
