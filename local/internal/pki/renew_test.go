package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/local/internal/layout"
)

// assertConsistent verifies, at a time, every certificate against its CA, and the certificates in kubeconfigs or their
// references.
func assertConsistent(t *testing.T, c layout.Cluster, now time.Time) {
	t.Helper()
	for file, s := range leaves(c) {
		pair, err := tls.LoadX509KeyPair(c.PKI(file+".crt"), c.PKI(file+".key"))
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM([]byte(read(t, c.PKI(s.by+".crt"))))
		options := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := pair.Leaf.Verify(options); err != nil {
			t.Errorf("%s at %s: %v", file, now, err)
		}
	}
	paths := []string{c.Kubeconfig()}
	for user := range users(c) {
		paths = append(paths, c.Config(user+".kubeconfig"))
	}
	for _, path := range paths {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if config.CAData != nil && string(config.CAData) != read(t, c.PKI("ca.crt")) {
			t.Errorf("%s carries another authority", path)
		}
		if config.CertData != nil && string(config.CertData) != read(t, c.PKI("user-admin.crt")) {
			t.Errorf("%s carries another certificate", path)
		}
	}
}

func TestCertificatesThatAreGoodStay(t *testing.T) {
	c := newCluster(t)
	ensure(t, c, start)
	before := snapshot(t, c)
	ensure(t, c, start.Add(300*day))
	for file, text := range snapshot(t, c) {
		if before[file] != text {
			t.Errorf("%s was made anew although it is good for two months", file)
		}
	}
}

func snapshot(t *testing.T, c layout.Cluster) map[string]string {
	t.Helper()
	all := map[string]string{"kubeconfig": read(t, c.Kubeconfig())}
	for _, dir := range []string{c.PKI(""), c.Config("")} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all[e.Name()] = read(t, dir+"/"+e.Name())
		}
	}
	return all
}

// The supervisor checks once a day, until the CA itself expires.
func TestAClusterThatRunsForYears(t *testing.T) {
	c := newCluster(t)
	c.Nodes = c.Nodes[:1]
	ensure(t, c, start)
	ca, renewals := read(t, c.PKI("ca.crt")), 0
	for now := start; now.Before(start.Add(authorityLife - authorityMargin - day)); now = now.Add(5 * day) {
		reasons, err := Unusable(c, now)
		if err != nil || len(reasons) > 0 {
			t.Fatalf("at %s: %q, %v", now, reasons, err)
		}
		renewed, err := Renew(c, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(renewed) > 0 {
			if len(renewed) != len(leaves(c)) {
				t.Fatalf("at %s only %q were renewed of certificates of one age", now, renewed)
			}
			renewals++
			assertConsistent(t, c, now.Add(leafMargin))
		}
	}
	if renewals != 10 {
		t.Errorf("in ten years certificates of one year were renewed %d times", renewals)
	}
	if read(t, c.PKI("ca.crt")) != ca {
		t.Error("Renew replaced the authority of a cluster that runs")
	}
}

func TestACertificateDoesNotOutliveItsAuthority(t *testing.T) {
	c := newCluster(t)
	ensure(t, c, start)
	late := start.Add(authorityLife - 100*day)
	ensure(t, c, late)
	if until := parse(t, c.PKI("apiserver.crt")).NotAfter; !until.Equal(start.Add(authorityLife)) {
		t.Errorf("the API server's certificate is good until %s, its authority until %s", until, start.Add(authorityLife))
	}
	// A certificate that can't last longer must not be renewed again and again.
	if renewed, err := Renew(c, start.Add(authorityLife-10*day)); err != nil || len(renewed) > 0 {
		t.Errorf("renewed %q, %v", renewed, err)
	}
}

func TestUnusableAuthoritiesAreMadeAnewConsistently(t *testing.T) {
	tests := map[string]struct {
		made, now time.Time
		want      string
	}{
		"the clock was ahead when the cluster was made":     {start.Add(20 * 365 * day), start, "the clock was wrong"},
		"the authority expired while the cluster was down":  {start, start.Add(11 * 365 * day), "it expired at"},
		"the authority expires in two months":               {start, start.Add(authorityLife - 60*day), "it expires at"},
		"the clock was an hour ahead, which is no reason":   {start.Add(50 * time.Minute), start, ""},
		"the authority has four months, which is no reason": {start, start.Add(authorityLife - 120*day), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			ensure(t, c, test.made)
			ca, tokens := read(t, c.PKI("ca.crt")), read(t, c.PKI("sa.key"))
			reasons, err := Unusable(c, test.now)
			if err != nil {
				t.Fatal(err)
			}
			if unusable := len(reasons) == 3; unusable != (test.want != "") || !strings.Contains(strings.Join(reasons, ""), test.want) {
				t.Errorf("the reasons are %q, want three times %q", reasons, test.want)
			}
			ensure(t, c, test.now)
			assertConsistent(t, c, test.now)
			if changed := read(t, c.PKI("ca.crt")) != ca; changed != (test.want != "") {
				t.Errorf("made anew: %t", changed)
			}
			if read(t, c.PKI("sa.key")) != tokens {
				t.Error("the key of the tokens was made anew: every token is void")
			}
			if reasons, err := Unusable(c, test.now); err != nil || len(reasons) > 0 {
				t.Errorf("still not usable: %q, %v", reasons, err)
			}
		})
	}
}

// TestInterruptedMakingIsCompleted kills the process, at each file, before it writes the next. A second run must
// complete the files.
func TestInterruptedMakingIsCompleted(t *testing.T) {
	for _, file := range []string{"ca.key", "etcd-ca.key", "apiserver.key", "etcd.key", "user-admin.key"} {
		t.Run(file, func(t *testing.T) {
			c, other := newCluster(t), newCluster(t)
			ensure(t, c, start)
			ensure(t, other, start)
			if err := os.WriteFile(c.PKI(file), []byte(read(t, other.PKI(file))), 0o600); err != nil {
				t.Fatal(err)
			}
			ensure(t, c, start)
			assertConsistent(t, c, start)
		})
	}
}

func TestAClockThatCannotBeRightIsRefused(t *testing.T) {
	c := newCluster(t)
	ensure(t, c, start)
	before := snapshot(t, c)
	wrong := time.Date(1970, time.January, 1, 0, 1, 0, 0, time.UTC)
	if err := Ensure(c, wrong); err == nil || !strings.Contains(err.Error(), "clock says 1970-01-01T00:01:00Z") {
		t.Errorf("the clock was believed: %v", err)
	}
	if snapshot(t, c)["ca.crt"] != before["ca.crt"] {
		t.Error("the authority was made anew for a clock that is wrong")
	}
}

func TestComponentsReferToFilesThatTheyReadAgain(t *testing.T) {
	c := newCluster(t)
	ensure(t, c, time.Now())
	for user := range users(c) {
		config, err := clientcmd.BuildConfigFromFlags("", c.Config(user+".kubeconfig"))
		if err != nil {
			t.Fatal(err)
		}
		transport, err := config.TransportConfig()
		if err != nil {
			t.Fatal(err)
		}
		if transport.TLS.CertFile == "" || transport.TLS.KeyFile == "" || len(transport.TLS.CertData) > 0 {
			t.Errorf("the kubeconfig of %s carries its certificate: client-go never reads it again", user)
		}
	}
}

// Earlier builds' certificates name the hosts in another order, and must stay.
func TestTheOrderOfHostsIsNoReasonToRenew(t *testing.T) {
	c := newCluster(t)
	now := time.Now()
	ca, err := newAuthority("some-ca", c.PKI("some-ca.crt"), c.PKI("some-ca.key"), now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server", Organization: []string{"g"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(leafLife),
		DNSNames: []string{"localhost", "a"}, IPAddresses: []net.IP{{10, 0, 0, 2}, {10, 0, 0, 1}},
	}, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := encode(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf := Leaf{Name: "server", Groups: []string{"g"}, Hosts: []string{"a", "10.0.0.1", "10.0.0.2", "localhost"}}
	if why := ca.stale(pair, leaf, now); why != nil {
		t.Errorf("a certificate with the same hosts is to be made anew: %v", why)
	}
	leaf.Hosts = leaf.Hosts[1:]
	if ca.stale(pair, leaf, now) == nil {
		t.Error("a certificate for a host too many stays")
	}
}
