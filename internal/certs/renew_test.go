package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"drydock.dev/drydock/internal/metrictable/tabletest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

var short = clusterconfig.Certificates{
	Authority:   clusterconfig.Lifetime{Duration: 48 * time.Hour, RenewBefore: 24 * time.Hour},
	Certificate: clusterconfig.Lifetime{Duration: 24 * time.Hour, RenewBefore: 12 * time.Hour},
}

func TestWhatIsDue(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	// cert was made ago before now, and is valid for left from now on.
	cert := func(ago, left time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(-ago - backdated), NotAfter: now.Add(left)}
	}
	const h = time.Hour
	for name, test := range map[string]struct {
		authority, certificate *x509.Certificate
		want                   clusterconfig.Certificates
		what                   renewal
		in                     time.Duration
	}{
		"both are new: the certificate is next":          {cert(0, 48*h), cert(0, 24*h), short, renewNothing, 12 * h},
		"the certificate is half over":                   {cert(h, 47*h), cert(12*h, 12*h), short, renewCertificate, 0},
		"the authority is half over":                     {cert(24*h, 24*h), cert(0, 24*h), short, renewAuthority, 0},
		"both are: the authority brings a certificate":   {cert(25*h, 23*h), cert(13*h, 11*h), short, renewAuthority, 0},
		"a certificate that ends with its authority":     {cert(24*h-1, 24*h+1), cert(20*h, 24*h+1), short, renewNothing, 1},
		"the authority is good for longer than asked":    {cert(h, 1000*h), cert(0, 24*h), short, renewAuthority, 0},
		"the certificate is good for longer than asked":  {cert(h, 47*h), cert(h, 47*h), short, renewCertificate, 0},
		"what was made just now is left for a while":     {cert(time.Minute, 1000*h), cert(time.Minute, 500*h), short, renewNothing, 9 * time.Minute},
		"an authority that has expired":                  {cert(100*h, -h), cert(h, 12*h), short, renewAuthority, 0},
		"longer lifetimes: what is short is due":         {cert(h, 47*h), cert(h, 23*h), clusterconfig.DefaultCertificates(), renewAuthority, 0},
		"the defaults":                                   {cert(0, 10*365*24*h), cert(0, 365*24*h), clusterconfig.DefaultCertificates(), renewNothing, 292 * 24 * h},
		"the defaults, a certificate that ends too soon": {cert(300*24*h, 3350*24*h), cert(300*24*h, 65*24*h), clusterconfig.DefaultCertificates(), renewCertificate, 0},
	} {
		t.Run(name, func(t *testing.T) {
			what, next := due(issuance{authority: test.authority, certificate: test.certificate}, test.want, now)
			if what != test.what {
				t.Fatalf("%d is renewed, want %d", what, test.what)
			}
			if what == renewNothing && next.Sub(now) != test.in {
				t.Errorf("next in %s, want %s", next.Sub(now), test.in)
			}
		})
	}
}

// Each strategy runs a year: renewing must end, nothing may expire, and two rotations must be at least the
// strategy's steps apart.
func TestRenewingComesToAnEnd(t *testing.T) {
	const least = 20 * time.Minute
	for _, want := range []clusterconfig.Certificates{
		short, clusterconfig.DefaultCertificates(),
		{Authority: clusterconfig.Lifetime{Duration: 40 * time.Minute, RenewBefore: least}, Certificate: clusterconfig.Lifetime{Duration: 40 * time.Minute, RenewBefore: least}},
		{Authority: clusterconfig.Lifetime{Duration: 100 * time.Hour, RenewBefore: least}, Certificate: clusterconfig.Lifetime{Duration: 100 * time.Hour, RenewBefore: 99 * time.Hour}},
		{Authority: clusterconfig.Lifetime{Duration: 100 * time.Hour, RenewBefore: 80 * time.Hour}, Certificate: clusterconfig.Lifetime{Duration: 50 * time.Hour, RenewBefore: 30 * time.Hour}},
	} {
		now := time.Now()
		begin, last := now, time.Time{}
		is := issuance{
			authority:   &x509.Certificate{NotBefore: now.Add(-2 * backdated), NotAfter: now.Add(20 * 365 * 24 * time.Hour)},
			certificate: &x509.Certificate{NotBefore: now.Add(-2 * backdated), NotAfter: now.Add(time.Hour)},
		}
		for steps := 0; now.Before(begin.Add(365 * 24 * time.Hour)); steps++ {
			if steps > 100000 {
				t.Fatalf("%+v: it does not come to an end", want)
			}
			what, next := due(is, want, now)
			if what == renewNothing {
				now = next
				if !now.Before(is.authority.NotAfter) || !now.Before(is.certificate.NotAfter) {
					t.Fatalf("%+v: something has expired", want)
				}
				continue
			}
			if !last.IsZero() && now.Sub(last) < least {
				t.Fatalf("%+v: two rotations within %s", want, now.Sub(last))
			}
			last = now
			if what == renewAuthority {
				is.authority = &x509.Certificate{NotBefore: now.Add(-backdated), NotAfter: now.Add(want.Authority.Duration)}
			}
			end := now.Add(want.Certificate.Duration)
			if end.After(is.authority.NotAfter) {
				end = is.authority.NotAfter
			}
			is.certificate = &x509.Certificate{NotBefore: now.Add(-backdated), NotAfter: end}
		}
	}
}

// The Secret was made an hour ago.
type renewing struct {
	*renewer
	t *testing.T
}

func newRenewing(t *testing.T, secret string, kv *v1.KubeVirt) *renewing {
	t.Helper()
	by := newRotator(secret, x509.ExtKeyUsageClientAuth, nil)
	if secret == APISecret {
		by = newRotator(secret, x509.ExtKeyUsageServerAuth, nil)
	}
	ago := time.Now().Add(-time.Hour)
	authority, err := by.CreateCACert(ago.Add(-backdated), ago.Add(clusterconfig.DefaultAuthorityDuration))
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := by.CreateCertPEM(authority, ago.Add(-backdated), ago.Add(clusterconfig.DefaultCertificateDuration))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: secret},
		Data:       map[string][]byte{AuthorityEntry: authority.CertPEM, AuthorityKeyEntry: authority.KeyPEM, by.CertName: cert, by.KeyName: key},
	}}
	if kv != nil {
		objects = append(objects, kv)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	return &renewing{renewer: &renewer{client: c, rotators: []*rotator.CertRotator{by}, now: time.Now, lifetimes: &Lifetimes{}}, t: t}
}

func (r *renewing) secret() *corev1.Secret {
	r.t.Helper()
	secret := &corev1.Secret{}
	if err := r.client.Get(context.Background(), r.rotators[0].SecretKey, secret); err != nil {
		r.t.Fatal(err)
	}
	return secret
}

func (r *renewing) reconcile() time.Duration {
	r.t.Helper()
	result, err := r.Reconcile(context.Background(), reconcile.Request{NamespacedName: r.rotators[0].SecretKey})
	if err != nil {
		r.t.Fatal(err)
	}
	return result.RequeueAfter
}

func (r *renewing) issued() issued {
	data := r.secret().Data
	return issued{data[AuthorityEntry], data[AuthorityKeyEntry], data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey]}
}

func strategy(authority, certificate time.Duration) *v1.KubeVirt {
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: clusterconfig.Namespace, Name: clusterconfig.Name}}
	kv.Spec.CertificateRotationStrategy.SelfSigned = &v1.KubeVirtSelfSignConfiguration{
		CA:     &v1.CertConfig{Duration: &metav1.Duration{Duration: authority}},
		Server: &v1.CertConfig{Duration: &metav1.Duration{Duration: certificate}},
	}
	return kv
}

func certificates(t *testing.T, text []byte) []*x509.Certificate {
	t.Helper()
	var all []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cert)
	}
	return all
}

func TestTheKubeVirtObjectShortensCertificates(t *testing.T) {
	r := newRenewing(t, APISecret, strategy(48*time.Hour, 24*time.Hour))
	before := r.issued()
	r.reconcile()
	after := r.issued()
	authorities, chain := certificates(t, after.authority), certificates(t, after.cert)
	if len(authorities) != 2 || len(chain) != 2 {
		t.Fatalf("%d authorities and %d certificates in the chain, want 2 and 2", len(authorities), len(chain))
	}
	if left := time.Until(authorities[0].NotAfter); left > 48*time.Hour || left < 47*time.Hour {
		t.Errorf("the new authority is good for %s", left)
	}
	if left := time.Until(chain[0].NotAfter); left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("the new certificate is good for %s", left)
	}
	if !authorities[1].Equal(certificates(t, before.authority)[0]) {
		t.Error("the old authority is not trusted any more")
	}
	// kube-apiserver does not know the new CA yet.
	roots, bridge := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(before.authority)
	bridge.AddCert(chain[1])
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: r.rotators[0].DNSName, Roots: roots, Intermediates: bridge}); err != nil {
		t.Errorf("who knows the old authority alone refuses the new certificate: %v", err)
	}
	ok, err := rotator.ValidCert(after.authority, after.cert, after.key, r.rotators[0].DNSName, r.rotators[0].ExtKeyUsages, time.Now())
	if !ok || err != nil {
		t.Errorf("the rotator does not accept what was renewed: %v", err)
	}
	if wait := r.reconcile(); wait < 11*time.Hour || !bytes.Equal(r.issued().cert, after.cert) {
		t.Errorf("it is renewed again, or looked at in %s", wait)
	}
}

func TestWithoutAnObjectNothingIsRenewed(t *testing.T) {
	for name, kv := range map[string]*v1.KubeVirt{"none": nil, "one that admission would have refused": strategy(time.Second, time.Hour)} {
		r := newRenewing(t, UploadSecret, kv)
		before := r.secret()
		if wait := r.reconcile(); wait != lookAgain {
			t.Errorf("%s: looked at again in %s", name, wait)
		}
		if r.secret().ResourceVersion != before.ResourceVersion {
			t.Errorf("%s: the Secret was written", name)
		}
	}
}

// Clients and servers from before and after a rotation must accept each other.
func TestARotationCutsNobodyOff(t *testing.T) {
	handlers := issue(t, HandlerAuthoritySecret)
	r := newRenewing(t, HandlerClientSecret, strategy(48*time.Hour, 24*time.Hour))
	before := r.issued()
	r.reconcile()
	after := r.issued()
	if bytes.Equal(certificates(t, before.authority)[0].Raw, certificates(t, after.authority)[0].Raw) {
		t.Fatal("the authority is the same")
	}
	for name, trusted := range map[string]issued{"who knows only the old authority": before, "who knows both": after} {
		server := serve(t, node(t, "node1", handlers, trusted).ServerConfig())
		for whose, own := range map[string]issued{"the old certificate": before, "the new certificate": after} {
			if _, err := call(t, server, nodecert.DNSName("node1"), source(HandlerClient(), own, handlers).ClientConfig()); err != nil {
				t.Errorf("%s refuses %s: %v", name, whose, err)
			}
		}
	}
}

func TestTheTimesOfASecretAreShown(t *testing.T) {
	r := newRenewing(t, APISecret, strategy(48*time.Hour, 24*time.Hour))
	r.reconcile()
	r.reconcile()
	data := r.issued()
	authority, cert := certificates(t, data.authority)[0].NotAfter, certificates(t, data.cert)[0].NotAfter
	// By default they are renewed after four fifths of their lifetimes.
	want := tabletest.Page(fmt.Sprintf(`
drydock_certificate_expiry_timestamp_seconds{part="authority",secret="kubevirt-virt-api-certs"} %[1]s
drydock_certificate_expiry_timestamp_seconds{part="certificate",secret="kubevirt-virt-api-certs"} %[2]s
drydock_certificate_renewal_timestamp_seconds{part="authority",secret="kubevirt-virt-api-certs"} %[3]s
drydock_certificate_renewal_timestamp_seconds{part="certificate",secret="kubevirt-virt-api-certs"} %[4]s
`, unix(authority), unix(cert), unix(authority.Add(-48*time.Hour/5)), unix(cert.Add(-24*time.Hour/5))))
	if err := testutil.CollectAndCompare(r.lifetimes, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func unix(at time.Time) string { return strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64) }
