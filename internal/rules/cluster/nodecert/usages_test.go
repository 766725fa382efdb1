package nodecert

import (
	"crypto"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// A virt-handler of the previous release must get the usages that it requests, and no more.
func TestACertificateHasTheUsagesThatWereAskedFor(t *testing.T) {
	now := time.Now()
	signer, certificate := authority(t, now.Add(1000*time.Hour))
	trust := pool(t, certificate)
	for usages, calls := range map[Usages]bool{ServerAndClient: true, ServerOnly: false} {
		request := asked(t, "node1", newKey(t))
		request.Spec.Usages = usages.list()
		leaf := issued(t, signer, request, now)
		if got := Calls(leaf); got != calls {
			t.Errorf("usages %v: that it can call others is %v", usages.list(), got)
		}
		if err := verify(leaf, "node1", trust, now); err != nil {
			t.Errorf("usages %v: as a server's: %v", usages.list(), err)
		}
		_, err := leaf.Verify(x509.VerifyOptions{Roots: trust, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		if (err == nil) != calls {
			t.Errorf("usages %v: as a client's: %v", usages.list(), err)
		}
	}
}

func TestOnlyAVirtHandlersCertificateHasAHolder(t *testing.T) {
	for name, c := range map[string]struct {
		names []string
		node  string
		want  string
	}{
		"a virt-handler's":                   {[]string{DNSName("node1")}, "node1", ""},
		"what is made beside the authority":  {[]string{"virt-handler-ca.kubevirt.svc"}, "", "which is no virt-handler's name"},
		"one without a node":                 {[]string{suffix}, "", "which is no virt-handler's name"},
		"one without a name":                 {nil, "", "has 0 names"},
		"one with the names of two nodes":    {[]string{DNSName("node1"), DNSName("node2")}, "", "has 2 names"},
		"a name that goes on after the node": {[]string{DNSName("node1") + ".example.com"}, "", "which is no virt-handler's name"},
	} {
		node, err := Holder(&x509.Certificate{DNSNames: c.names})
		if node != c.node || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v; want %q, %q", name, node, err, c.node, c.want)
		}
	}
}

// A virt-api of the previous release signs for servers only.
func TestAfterARefusalTheOtherUsagesAreAskedFor(t *testing.T) {
	now := time.Now()
	signer, certificate := authority(t, now.Add(1000*time.Hour))
	key := newKey(t)
	seen := func(asked Usages, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		request, err := New("node1", key, asked)
		if err != nil {
			t.Fatal(err)
		}
		request.Spec.Username = Account
		request.Spec.Extra = map[string]certificatesv1.ExtraValue{nodeNameExtra: {"node1"}, podUIDExtra: {"b2c4"}}
		change(request)
		return request
	}
	denied := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied})
	}
	failed := func(r *certificatesv1.CertificateSigningRequest) {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed})
	}
	signed := func(r *certificatesv1.CertificateSigningRequest) {
		grant, err := Check(r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status.Certificate, err = signer.Sign(grant, now); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		asked  Usages
		change func(*certificatesv1.CertificateSigningRequest)
		key    crypto.Signer
		step   Step
		next   Usages
	}{
		"a request for both is denied":            {ServerAndClient, denied, key, Discard, ServerOnly},
		"a request for both has failed":           {ServerAndClient, failed, key, Discard, ServerOnly},
		"a request to serve is denied":            {ServerOnly, denied, key, Discard, ServerAndClient},
		"a request for both is signed":            {ServerAndClient, signed, key, Take, ServerAndClient},
		"a request to serve is signed":            {ServerOnly, signed, key, Take, ServerAndClient},
		"a request to serve waits":                {ServerOnly, func(*certificatesv1.CertificateSigningRequest) {}, key, Await, ServerOnly},
		"a predecessor's request for both denied": {ServerAndClient, denied, newKey(t), Discard, ServerAndClient},
	} {
		got := Decide(Observation{Node: "node1", Now: now, Trust: pool(t, certificate), Key: c.key, Usages: c.asked, Request: seen(c.asked, c.change)})
		if got.Step != c.step || got.Usages != c.next {
			t.Errorf("%s: step %d, then usages %v; want %d, %v", what, got.Step, got.Usages.list(), c.step, c.next.list())
		}
	}
	if got := Decide(Observation{Node: "node1", Now: now, Usages: ServerOnly}); got.Step != Ask || got.Usages != ServerOnly {
		t.Errorf("the request after a refusal: step %d for %v", got.Step, got.Usages.list())
	}
}
