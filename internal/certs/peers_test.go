package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

const protocol = "test/1"

func peer(t *testing.T, name string, authority issued, known ...issued) *Source {
	t.Helper()
	s := node(t, name, authority)
	s.setPool(&s.own, bundle(known...))
	return s
}

// meet lets the client call the server, and returns the node for which the server takes it.
func meet(t *testing.T, server, client *tls.Config) (string, error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	type outcome struct {
		node string
		err  error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			outcomes <- outcome{err: err}
			return
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		secured := tls.Server(conn, server)
		if err := secured.Handshake(); err != nil {
			outcomes <- outcome{err: err}
			return
		}
		name, err := nodecert.Holder(secured.ConnectionState().PeerCertificates[0])
		if err == nil {
			_, err = secured.Write([]byte{1})
		}
		outcomes <- outcome{name, err}
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	secured := tls.Client(conn, client)
	err = secured.Handshake()
	if err == nil {
		// The refusal of a client's certificate comes after the client's handshake.
		_, err = io.ReadFull(secured, make([]byte, 1))
	}
	_ = conn.Close()
	got := <-outcomes
	return got.node, errors.Join(err, got.err)
}

func TestVirtHandlersKnowEachOther(t *testing.T) {
	handlers, api, stranger := issue(t, HandlerAuthoritySecret), issue(t, HandlerClientSecret), issue(t, HandlerAuthoritySecret)
	target := peer(t, "node2", handlers, handlers)
	source := peer(t, "node1", handlers, handlers)
	older := peer(t, "node1", handlers, handlers)
	older.Use(servesOnly(t, handlers))
	unnamed := peer(t, "node1", handlers, handlers)
	unnamed.setPair(handlers.cert, handlers.key) // cert-controller makes it beside the CA
	foreign := func() *Source {
		s := peer(t, "node1", handlers, handlers)
		s.setPair(api.cert, api.key)
		return s
	}()
	name := nodecert.DNSName("node2")
	for what, c := range map[string]struct {
		server, client *tls.Config
		want           string
	}{
		"the source calls the target":                 {target.PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), ""},
		"another node pretends to be the target":      {peer(t, "node3", handlers, handlers).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), "the certificate of " + name + " is not accepted"},
		"a target of another authority":               {peer(t, "node2", stranger, handlers).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), "is not accepted"},
		"a source of another authority":               {target.PeerServerConfig(protocol), peer(t, "node1", stranger, handlers).PeerClientConfig(name, protocol), "signed by unknown authority"},
		"virt-api's own client certificate":           {target.PeerServerConfig(protocol), foreign.PeerClientConfig(name, protocol), "signed by unknown authority"},
		"the certificate beside the authority":        {target.PeerServerConfig(protocol), unnamed.PeerClientConfig(name, protocol), "which is no virt-handler's name"},
		"a source without a certificate":              {target.PeerServerConfig(protocol), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, "client didn't provide a certificate"},
		"a source whose certificate is for serving":   {target.PeerServerConfig(protocol), older.PeerClientConfig(name, protocol), "for serving only"},
		"a source that shows it nevertheless":         {target.PeerServerConfig(protocol), showing(t, older, source, name), "incompatible key usage"},
		"a client of TLS 1.2":                         {target.PeerServerConfig(protocol), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{protocol}}, "protocol version"},
		"a client of another protocol":                {target.PeerServerConfig(protocol), source.PeerClientConfig(name, "http/1.1"), "does not speak test/1"},
		"a source that knows no authorities":          {target.PeerServerConfig(protocol), peer(t, "node1", handlers).PeerClientConfig(name, protocol), "no authority kubevirt-virt-handler-ca.crt"},
		"a target that knows no authorities":          {peer(t, "node2", handlers).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), "no authority kubevirt-virt-handler-ca.crt"},
		"a target without a certificate":              {NewSource(nil, HandlerServer()).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), "no certificate yet"},
		"a source that calls a name that nobody has":  {target.PeerServerConfig(protocol), source.PeerClientConfig("node2", protocol), "is not accepted"},
		"a source that does not say whom it wants":    {target.PeerServerConfig(protocol), source.PeerClientConfig("", protocol), "must be called by a name"},
		"a target that trusts a successor as well":    {peer(t, "node2", handlers, stranger, handlers).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), ""},
		"a target whose authority was taken out":      {target.PeerServerConfig(protocol), peer(t, "node1", handlers, stranger).PeerClientConfig(name, protocol), "is not accepted"},
		"a source whose authority the target forgets": {peer(t, "node2", handlers, stranger).PeerServerConfig(protocol), source.PeerClientConfig(name, protocol), "signed by unknown authority"},
	} {
		got, err := meet(t, c.server, c.client)
		switch {
		case c.want == "" && (err != nil || got != "node1"):
			t.Errorf("%s: the peer is %q, %v", what, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// servesOnly is a certificate of node1 as the previous release signed it.
func servesOnly(t *testing.T, authority issued) *tls.Certificate {
	t.Helper()
	return certificate(t, "node1", authority, nodecert.ServerOnly)
}

// showing is a client that sends a certificate without asking whether it may.
func showing(t *testing.T, certificate, trust *Source, name string) *tls.Config {
	t.Helper()
	config := trust.PeerClientConfig(name, protocol)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return certificate.pair.Load().tls, nil
	}
	return config
}

// A virt-handler's certificate must be valid only for migrations between virt-handlers: not for another handler's
// consoles, not for virt-api.
func TestAVirtHandlersCertificateOpensNothingElse(t *testing.T) {
	handlers, api, uploads := issue(t, HandlerAuthoritySecret), issue(t, HandlerClientSecret), issue(t, UploadSecret)
	own := node(t, "node1", handlers).pair.Load().tls
	for what, server := range map[string]*Source{
		"virt-handler's consoles": node(t, "node2", handlers, api),
		"a server of uploads":     source(UploadProxy(), uploads, uploads),
		"whoever trusts virt-api": source(HandlerClient(), api, api),
	} {
		show := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }}
		if _, err := meet(t, server.ServerConfig(), show); err == nil || !strings.Contains(err.Error(), "signed by unknown authority") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// virt-api requests no certificate: nobody is identified by one there.
	config, err := source(APIServer(), issue(t, APISecret)).ServerConfig().GetConfigForClient(nil)
	if err != nil || config.ClientAuth != tls.NoClientCert || config.ClientCAs != nil {
		t.Errorf("virt-api asks clients for certificates: %v, %v", config.ClientAuth, err)
	}
	// It must not be a CA either.
	leaf, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil || leaf.IsCA || leaf.KeyUsage&x509.KeyUsageCertSign != 0 {
		t.Errorf("it could sign: %v", err)
	}
}

func certificate(t *testing.T, name string, authority issued, usages nodecert.Usages) *tls.Certificate {
	t.Helper()
	request, key := request(t, name, usages)
	grant, err := nodecert.Check(request)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := nodecert.NewAuthority(authority.authority, authority.authorityKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signer.Sign(grant, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	return &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key}
}
