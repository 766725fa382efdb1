package nodecert

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// asked is a request as the API server stores it, with its facts about the requester.
func asked(t testing.TB, node string, key crypto.Signer) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	request, err := New(node, key, ServerAndClient)
	if err != nil {
		t.Fatal(err)
	}
	request.Spec.Username = Account
	request.Spec.Extra = map[string]certificatesv1.ExtraValue{nodeNameExtra: {node}, podUIDExtra: {"b2c4"}}
	return request
}

// authority returns one as cert-controller makes them.
func authority(t testing.TB, until time.Time) (made *Authority, certificate []byte) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: "authority"}, NotBefore: until.Add(-10000 * time.Hour), NotAfter: until,
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	made, err = NewAuthority(certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		t.Fatal(err)
	}
	return made, certificate
}

func pool(t testing.TB, certificates ...[]byte) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	for _, c := range certificates {
		if !p.AppendCertsFromPEM(c) {
			t.Fatal("no certificate")
		}
	}
	return p
}

// content gives the request another content, signed by key.
func content(t testing.TB, request *certificatesv1.CertificateSigningRequest, key crypto.Signer, change func(*x509.CertificateRequest)) {
	t.Helper()
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}, DNSNames: []string{DNSName("node1")}}
	change(template)
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	request.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der})
}

// An attacker on a node has its virt-handler's token and may write anything into a request; others may, too. A
// certificate must be for the token's node only.
func TestARequestIsForTheNodeOfItsTokenAndNothingElse(t *testing.T) {
	key := newKey(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asks := func(change func(*x509.CertificateRequest)) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) { content(t, r, key, change) }
	}
	for what, test := range map[string]struct {
		change  func(*certificatesv1.CertificateSigningRequest)
		refused string
	}{
		"virt-handler's own": {func(*certificatesv1.CertificateSigningRequest) {}, ""},
		"one without a lifetime": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.ExpirationSeconds = nil
		}, ""},
		"usages in another order": {func(r *certificatesv1.CertificateSigningRequest) {
			slices.Reverse(r.Spec.Usages)
		}, ""},
		"the usages of the release before": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature}
		}, ""},
		"a tenant's": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Username = "system:serviceaccount:shop:kubevirt-handler"
		}, "only system:serviceaccount:kubevirt:kubevirt-handler may ask"},
		"a kubelet's": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Username = "system:node:node1"
		}, "only system:serviceaccount:kubevirt:kubevirt-handler may ask"},
		"a token that is bound to no pod": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra = nil
		}, "not bound to a pod"},
		"a token that is bound to a node only": {func(r *certificatesv1.CertificateSigningRequest) {
			delete(r.Spec.Extra, podUIDExtra)
		}, "not bound to a pod"},
		"a token of two nodes": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra[nodeNameExtra] = certificatesv1.ExtraValue{"node1", "node2"}
		}, "not bound to a pod"},
		"a token of an empty node": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra[nodeNameExtra] = certificatesv1.ExtraValue{""}
		}, "not bound to a pod"},
		"another node's token": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra[nodeNameExtra] = certificatesv1.ExtraValue{"node2"}
		}, "must be named drydock-virt-handler-node2"},
		"another node's token and name": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Extra[nodeNameExtra] = certificatesv1.ExtraValue{"node2"}
			r.Name = RequestName("node2")
		}, "may have the name node2.virt-handler.kubevirt.svc and no other"},
		"a name of its own": {func(r *certificatesv1.CertificateSigningRequest) { r.Name = "csr-1" }, "must be named"},
		"a client's usage alone": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}
		}, "the usages must be [digital signature server auth client auth] or [digital signature server auth]"},
		"a usage twice": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageClientAuth)
		}, "the usages must be"},
		"a usage beside": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = append(r.Spec.Usages, certificatesv1.UsageCodeSigning)
		}, "the usages must be"},
		"an authority's usage": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageCertSign}
		}, "the usages must be"},
		"a second name": {asks(func(c *x509.CertificateRequest) {
			c.DNSNames = append(c.DNSNames, DNSName("node2"))
		}), "and no other"},
		"the same name twice": {asks(func(c *x509.CertificateRequest) {
			c.DNSNames = append(c.DNSNames, c.DNSNames[0])
		}), "and no other"},
		"a wildcard": {asks(func(c *x509.CertificateRequest) { c.DNSNames = []string{DNSName("*")} }), "and no other"},
		"virt-api's": {asks(func(c *x509.CertificateRequest) { c.DNSNames = []string{"virt-api.kubevirt.svc"} }), "and no other"},
		"no name":    {asks(func(c *x509.CertificateRequest) { c.DNSNames = nil }), "and no other"},
		"an address": {asks(func(c *x509.CertificateRequest) { c.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }), "and no other"},
		"an email":   {asks(func(c *x509.CertificateRequest) { c.EmailAddresses = []string{"a@b"} }), "and no other"},
		"a URI":      {asks(func(c *x509.CertificateRequest) { c.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} }), "and no other"},
		"a subject":  {asks(func(c *x509.CertificateRequest) { c.Subject.CommonName = "admin" }), "the subject must be"},
		"a group":    {asks(func(c *x509.CertificateRequest) { c.Subject.Organization = []string{"system:masters"} }), "the subject must be"},
		"no subject": {asks(func(c *x509.CertificateRequest) { c.Subject = pkix.Name{} }), "the subject must be"},
		"a CA's mark": {asks(func(c *x509.CertificateRequest) {
			c.ExtraExtensions = []pkix.Extension{{Id: []int{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}
		}), "has the extension 2.5.29.19"},
		"an RSA key": {func(r *certificatesv1.CertificateSigningRequest) {
			content(t, r, rsaKey, func(*x509.CertificateRequest) {})
		}, "ECDSA on P-256"},
		"a P-384 key": {func(r *certificatesv1.CertificateSigningRequest) {
			content(t, r, p384, func(*x509.CertificateRequest) {})
		}, "ECDSA on P-256"},
		"a key that is not its own": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Bytes[len(block.Bytes)-1] ^= 1
			r.Spec.Request = pem.EncodeToMemory(block)
		}, "does not prove to have the key"},
		"two requests": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = append(r.Spec.Request, r.Spec.Request...)
		}, "must be one PEM block"},
		"a certificate instead": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{1}})
		}, "must be one PEM block"},
		"PEM headers": {func(r *certificatesv1.CertificateSigningRequest) {
			block, _ := pem.Decode(r.Spec.Request)
			block.Headers = map[string]string{"a": "b"}
			r.Spec.Request = pem.EncodeToMemory(block)
		}, "must be one PEM block"},
		"nothing": {func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Request = nil }, "must be one PEM block"},
		"nonsense": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: []byte{1}})
		}, "can't be read"},
		"a megabyte": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Request = slices.Concat(make([]byte, 1<<20), r.Spec.Request)
		}, "4096 are enough"},
	} {
		request := asked(t, "node1", key)
		test.change(request)
		grant, err := Check(request)
		switch {
		case test.refused == "" && err != nil:
			t.Errorf("%s: refused: %v", what, err)
		case test.refused == "" && (grant.Node != "node1" || !key.PublicKey.Equal(grant.key)):
			t.Errorf("%s: granted to %q", what, grant.Node)
		case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused)):
			t.Errorf("%s: the refusal is %v, want %q", what, err, test.refused)
		case test.refused != "" && grant != Grant{}:
			t.Errorf("%s: refused and granted", what)
		}
	}
}

// issued returns the certificate for the request.
func issued(t testing.TB, by *Authority, request *certificatesv1.CertificateSigningRequest, now time.Time) *x509.Certificate {
	t.Helper()
	grant, err := Check(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := by.Sign(grant, now)
	if err != nil {
		t.Fatal(err)
	}
	der, err := single(text)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return leaf
}

func TestACertificateSaysItsNodeAndNothingElse(t *testing.T) {
	now := time.Now()
	signer, certificate := authority(t, now.Add(1000*time.Hour))
	key := newKey(t)
	leaf := issued(t, signer, asked(t, "node1", key), now)
	if !slices.Equal(leaf.DNSNames, []string{"node1.virt-handler.kubevirt.svc"}) || leaf.IsCA || leaf.KeyUsage != x509.KeyUsageDigitalSignature ||
		!slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) || !key.PublicKey.Equal(leaf.PublicKey) {
		t.Errorf("the certificate is for %v, usages %v %v, authority %v", leaf.DNSNames, leaf.KeyUsage, leaf.ExtKeyUsage, leaf.IsCA)
	}
	if node, err := Holder(leaf); err != nil || node != "node1" {
		t.Errorf("the holder is %q, %v", node, err)
	}
	if left := leaf.NotAfter.Sub(now); left > Lifetime || left < Lifetime-time.Minute {
		t.Errorf("the certificate is good for %v, want %v", left, Lifetime)
	}
	trust := pool(t, certificate)
	if err := verify(leaf, "node1", trust, now); err != nil {
		t.Errorf("as its own node's: %v", err)
	}
	if err := verify(leaf, "node2", trust, now); err == nil {
		t.Error("it passes for another node's")
	}
	if err := verify(leaf, "node1", trust, now.Add(Lifetime+time.Minute)); err == nil {
		t.Error("it is good longer than its lifetime")
	}
}

func TestNamesOfNodesAreNotMixedUp(t *testing.T) {
	long := strings.Repeat("a", 63) + "." + strings.Repeat("b", 63) + "." + strings.Repeat("c", 63) + "." + strings.Repeat("d", 61)
	now := time.Now()
	signer, certificate := authority(t, now.Add(1000*time.Hour))
	names := []string{"node1", "node1.example.com", "virt-handler.kubevirt.svc", "node1.virt-handler.kubevirt.svc", "10-0-0-1", long}
	for _, node := range names {
		if got, ok := NodeOf(DNSName(node)); !ok || got != node {
			t.Errorf("the node of %s is %q", DNSName(node), got)
		}
		grant, err := Check(asked(t, node, newKey(t)))
		if err != nil {
			t.Fatal(err)
		}
		text, err := signer.Sign(grant, now)
		if err != nil {
			t.Fatal(err)
		}
		der, _ := single(text)
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range names {
			if err := verify(leaf, other, pool(t, certificate), now); (err == nil) != (other == node) {
				t.Errorf("the certificate of %s as that of %s: %v", node, other, err)
			}
		}
	}
	for _, name := range []string{"", "node1", "virt-api.kubevirt.svc", ".virt-handler.kubevirt.svc", "node1.virt-handler.kubevirt.svc.example.com"} {
		if node, ok := NodeOf(name); ok {
			t.Errorf("%q is taken for the name of node %q", name, node)
		}
	}
}

func TestALifetimeIsBounded(t *testing.T) {
	now := time.Now()
	signer, _ := authority(t, now.Add(30*time.Hour))
	expired, _ := authority(t, now.Add(-time.Hour))
	key := newKey(t)
	for what, test := range map[string]struct {
		seconds *int32
		by      *Authority
		want    time.Duration
	}{
		"a year is asked for, and the authority has 30 hours": {new(int32(365 * 86400)), signer, 30 * time.Hour},
		"ten minutes are asked for":                           {new(int32(600)), signer, 10 * time.Minute},
		"less than nothing is asked for":                      {new(int32(-5)), signer, 0},
		"the authority has expired":                           {nil, expired, 0},
	} {
		request := asked(t, "node1", key)
		request.Spec.ExpirationSeconds = test.seconds
		grant, err := Check(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := test.by.Sign(grant, now)
		if test.want == 0 {
			if err == nil {
				t.Errorf("%s: signed", what)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		der, _ := single(text)
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if left := leaf.NotAfter.Sub(now); left > test.want || left < test.want-time.Minute {
			t.Errorf("%s: good for %v, want %v", what, left, test.want)
		}
	}
	if _, err := signer.Sign(Grant{}, now); err == nil {
		t.Error("nothing was granted, and signed")
	}
}

func TestJudge(t *testing.T) {
	conditions := func(kinds ...certificatesv1.RequestConditionType) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			for _, kind := range kinds {
				r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind})
			}
		}
	}
	both := func(changes ...func(*certificatesv1.CertificateSigningRequest)) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) {
			for _, change := range changes {
				change(r)
			}
		}
	}
	forged := func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "tenant" }
	for what, test := range map[string]struct {
		change    func(*certificatesv1.CertificateSigningRequest)
		act       Act
		condition certificatesv1.RequestConditionType
	}{
		"a good request":                      {func(*certificatesv1.CertificateSigningRequest) {}, Approve, certificatesv1.CertificateApproved},
		"one that was approved":               {conditions(certificatesv1.CertificateApproved), Sign, ""},
		"a forged one":                        {forged, Refuse, certificatesv1.CertificateDenied},
		"a forged one that somebody approved": {both(forged, conditions(certificatesv1.CertificateApproved)), Refuse, certificatesv1.CertificateFailed},
		"one that was denied":                 {conditions(certificatesv1.CertificateDenied), Ignore, ""},
		"one that failed":                     {conditions(certificatesv1.CertificateApproved, certificatesv1.CertificateFailed), Ignore, ""},
		"one that is signed": {both(conditions(certificatesv1.CertificateApproved), func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Certificate = []byte("x")
		}), Ignore, ""},
		"another signer's": {func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeletServingSignerName
		}, Ignore, ""},
	} {
		request := asked(t, "node1", newKey(t))
		test.change(request)
		verdict := Judge(request)
		if verdict.Act != test.act || verdict.Condition.Type != test.condition {
			t.Errorf("%s: act %d, condition %q", what, verdict.Act, verdict.Condition.Type)
		}
		if (verdict.Grant.key != nil) != (test.act == Approve || test.act == Sign) {
			t.Errorf("%s: granted %v", what, verdict.Grant)
		}
		if test.act == Approve || test.act == Refuse {
			Conclude(request, verdict, metav1.Now())
			if next := Judge(request); test.act == Approve && next.Act != Sign || test.act == Refuse && next.Act != Ignore {
				t.Errorf("%s: what follows the verdict is %d", what, next.Act)
			}
		}
	}
}

func TestDecide(t *testing.T) {
	now := time.Now()
	signer, certificate := authority(t, now.Add(1000*time.Hour))
	stranger, strangers := authority(t, now.Add(1000*time.Hour))
	key := newKey(t)
	signed := func(by *Authority, node string, key crypto.Signer, at time.Time) []byte {
		grant, err := Check(asked(t, node, key))
		if err != nil {
			t.Fatal(err)
		}
		text, err := by.Sign(grant, at)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	inUse := func(at time.Time) *InUse {
		der, _ := single(signed(signer, "node1", key, at))
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return &InUse{Leaf: leaf, Renew: Renewal(leaf, at, 0)}
	}
	status := func(certificate []byte, conditions ...certificatesv1.CertificateSigningRequestCondition) *certificatesv1.CertificateSigningRequest {
		request := asked(t, "node1", key)
		request.Status.Certificate, request.Status.Conditions = certificate, conditions
		return request
	}
	pending := status(nil)
	trust := pool(t, certificate)
	fresh, old := inUse(now), inUse(now.Add(-30*time.Hour))
	for what, test := range map[string]struct {
		o      Observation
		step   Step
		reason string
	}{
		"the first start":                              {Observation{}, Ask, ""},
		"nothing is trusted yet":                       {Observation{Key: key}, Ask, ""},
		"a fresh certificate":                          {Observation{InUse: fresh, Trust: trust}, Rest, ""},
		"a fresh certificate, the authorities unknown": {Observation{InUse: fresh}, Rest, ""},
		"half of its time is over":                     {Observation{InUse: old, Trust: trust}, Ask, ""},
		"its authority is gone":                        {Observation{InUse: fresh, Trust: pool(t, strangers)}, Ask, ""},
		"its authority has a successor":                {Observation{InUse: fresh, Trust: pool(t, strangers, certificate)}, Rest, ""},
		"the request waits":                            {Observation{Trust: trust, Key: key, Request: pending}, Await, ""},
		"the request waits while the old one serves":   {Observation{InUse: old, Trust: trust, Key: key, Request: pending}, Await, ""},
		"it is approved and not signed":                {Observation{Trust: trust, Key: key, Request: status(nil, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved})}, Await, ""},
		"it is denied": {Observation{Trust: trust, Key: key, Request: status(nil, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied, Message: "because"})},
			Discard, "is Denied: because"},
		"it has failed": {Observation{Trust: trust, Key: key, Request: status(nil, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Message: "because"})},
			Discard, "is Failed: because"},
		"it is signed":                               {Observation{Trust: trust, Key: key, Request: status(signed(signer, "node1", key, now))}, Take, ""},
		"it is signed, the authorities unknown":      {Observation{Key: key, Request: status(signed(signer, "node1", key, now))}, Await, ""},
		"it is signed by a stranger":                 {Observation{Trust: trust, Key: key, Request: status(signed(stranger, "node1", key, now))}, Discard, "unknown authority"},
		"it is signed for another node":              {Observation{Trust: trust, Key: key, Request: status(signed(signer, "node2", key, now))}, Discard, "not node1.virt-handler"},
		"it is signed for another key":               {Observation{Trust: trust, Key: key, Request: status(signed(signer, "node1", newKey(t), now))}, Discard, "another key"},
		"it expired in the meantime":                 {Observation{Trust: trust, Key: key, Request: status(signed(signer, "node1", key, now.Add(-50*time.Hour)))}, Discard, "expired"},
		"what was signed is no certificate":          {Observation{Trust: trust, Key: key, Request: status([]byte("x"))}, Discard, "not one PEM certificate"},
		"a predecessor's request":                    {Observation{Trust: trust, Key: newKey(t), Request: pending}, Discard, "does not have"},
		"a predecessor's request at the first start": {Observation{Trust: trust, Request: pending}, Discard, "does not have"},
		"the request has served its purpose":         {Observation{InUse: fresh, Trust: trust, Key: key, Request: pending}, Discard, ""},
	} {
		test.o.Node, test.o.Now = "node1", now
		got := Decide(test.o)
		if got.Step != test.step || (test.reason == "") != (got.Reason == nil) || got.Reason != nil && !strings.Contains(got.Reason.Error(), test.reason) {
			t.Errorf("%s: step %d, %v; want %d, %q", what, got.Step, got.Reason, test.step, test.reason)
		}
		if (got.Certificate != nil) != (test.step == Take) {
			t.Errorf("%s: the certificate is %v", what, got.Certificate)
		}
		if test.step == Rest && !got.Until.Equal(test.o.InUse.Renew) {
			t.Errorf("%s: rests until %v", what, got.Until)
		}
	}
}

func TestRenewalIsInGoodTimeAndSpread(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		usages Usages
		left   time.Duration
		spread float64
		want   time.Duration
	}{
		"when half of the time is over":         {ServerAndClient, 40 * time.Hour, 0, 20 * time.Hour},
		"a little before, by chance":            {ServerAndClient, 40 * time.Hour, 1, 16 * time.Hour},
		"soon, for one that serves only":        {ServerOnly, 40 * time.Hour, 0, 10 * time.Minute},
		"sooner, for one with little time left": {ServerOnly, 10 * time.Minute, 0, 5 * time.Minute},
	} {
		leaf := &x509.Certificate{NotAfter: now.Add(c.left), ExtKeyUsage: c.usages.extended()}
		if got := Renewal(leaf, now, c.spread).Sub(now); got != c.want {
			t.Errorf("%s: renewed after %v, want %v", name, got, c.want)
		}
	}
}

func TestAnAuthorityThatIsNoneIsRefused(t *testing.T) {
	if _, err := NewAuthority([]byte("x"), []byte("y")); err == nil || errors.Unwrap(err) == nil {
		t.Errorf("error is %v", err)
	}
	one, certificate := authority(t, time.Now().Add(time.Hour))
	_, other := authority(t, time.Now().Add(time.Hour))
	for what, test := range map[string]struct {
		bundle []byte
		want   bool
	}{
		"nothing":          {nil, false},
		"itself":           {certificate, true},
		"beside others":    {slices.Concat(other, certificate), true},
		"only another one": {other, false},
	} {
		if got := one.PublishedIn(test.bundle); got != test.want {
			t.Errorf("%s: published is %v", what, got)
		}
	}
}

func TestOneCertificateAndNothingBesideIt(t *testing.T) {
	_, certificate := authority(t, time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC))
	other := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})
	for name, test := range map[string]struct {
		text []byte
		ok   bool
	}{
		"one certificate":                    {certificate, true},
		"one, and an empty line":             {append(slices.Clone(certificate), '\n'), true},
		"nothing":                            {nil, false},
		"no PEM":                             {[]byte("certificate"), false},
		"a block of another type":            {other, false},
		"a certificate and something beside": {append(slices.Clone(certificate), other...), false},
	} {
		if _, err := single(test.text); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARequestIsCountedForTheNodeThatIsProven(t *testing.T) {
	request := asked(t, "node1", newKey(t))
	if got := Requester(request); got != "node1" {
		t.Errorf("the request of node1 is counted for %q", got)
	}
	request.Spec.Extra = nil
	if got := Requester(request); got != "" {
		t.Errorf("a request of which no node is proven is counted for %q", got)
	}
}

func TestARequestOfTheLargestSizeIsRead(t *testing.T) {
	for size, want := range map[int]string{4096: "must be one PEM block", 4097: "has 4097 bytes; 4096 are enough"} {
		if _, err := parse(make([]byte, size)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", size, err, want)
		}
	}
}
