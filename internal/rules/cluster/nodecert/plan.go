package nodecert

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// InUse is the certificate with which a virt-handler serves.
type InUse struct {
	Leaf *x509.Certificate
	// Renew is when to request the next one.
	Renew time.Time
}

// Renewal returns when to renew a new certificate: after about half of its remaining time, and soon if it is for
// serving only. spread, from 0 to 1, separates the requests of nodes that started together.
func Renewal(leaf *x509.Certificate, now time.Time, spread float64) time.Time {
	left := leaf.NotAfter.Sub(now)
	if !Calls(leaf) {
		left = min(left, servingLifetime)
	}
	return now.Add(left/2 - time.Duration(spread*float64(left)/10))
}

// Observation is virt-handler's view.
type Observation struct {
	Node  string
	Now   time.Time
	InUse *InUse
	// Trust has the authorities by which peers verify virt-handlers, nil if not known yet.
	Trust *x509.CertPool
	// Key is that of the last request, nil before the first.
	Key crypto.Signer
	// Usages are Decision.Usages of the last decision.
	Usages Usages
	// Request is the API server's object of the node's name, nil for none.
	Request *certificatesv1.CertificateSigningRequest
}

// Step is virt-handler's next step.
type Step int

// The steps.
const (
	// Rest until Decision.Until, or until the authorities change.
	Rest Step = iota
	// Ask with a new key, for Decision.Usages.
	Ask
	// Await a change of the request.
	Await
	// Take Decision.Certificate and serve with it.
	Take
	// Discard the request. Decision.Reason is why it failed, nil for a completed one; after a failure the next request
	// waits a while.
	Discard
)

// Decision is a Step with its arguments.
type Decision struct {
	Step        Step
	Until       time.Time
	Certificate *tls.Certificate
	Reason      error
	// Usages are those of this request, or else of the next one. A virt-api of the release before migrations refuses to
	// sign for a client; the node then requests the possible usage, so that its guests' consoles stay reachable.
	Usages  Usages
	refused bool
}

// Decide returns the next step towards a certificate that is valid until the next renewal, and leaves no request
// behind. The certificate in use stays until there is another.
func Decide(o Observation) Decision {
	decision := decide(&o)
	decision.Usages = o.Usages
	switch {
	case decision.Step == Take:
		decision.Usages = ServerAndClient
	case decision.Step == Discard && decision.refused:
		decision.Usages = ServerAndClient
		if asked, _ := usagesOf(o.Request); asked == ServerAndClient {
			decision.Usages = ServerOnly
		}
	}
	return decision
}

func decide(o *Observation) Decision {
	due := o.due()
	switch {
	case o.Request == nil && o.Now.Before(due):
		return Decision{Step: Rest, Until: due}
	case o.Request == nil:
		return Decision{Step: Ask}
	case o.Now.Before(due):
		return Decision{Step: Discard}
	case o.Key == nil || !madeWith(o.Request, o.Key):
		return Decision{Step: Discard, Reason: fmt.Errorf("the request %s is for a key that this process does not have", o.Request.Name)}
	}
	for _, kind := range []certificatesv1.RequestConditionType{certificatesv1.CertificateDenied, certificatesv1.CertificateFailed} {
		if c, refused := condition(o.Request, kind); refused {
			return Decision{Step: Discard, Reason: fmt.Errorf("the request %s is %s: %s", o.Request.Name, kind, c.Message), refused: true}
		}
	}
	if len(o.Request.Status.Certificate) == 0 || o.Trust == nil {
		return Decision{Step: Await}
	}
	pair, err := o.issued()
	if err != nil {
		return Decision{Step: Discard, Reason: fmt.Errorf("the certificate of the request %s can't be used: %w", o.Request.Name, err)}
	}
	return Decision{Step: Take, Certificate: pair}
}

// A certificate is due at its renewal, and at once if peers no longer accept it.
func (o *Observation) due() time.Time {
	if o.InUse == nil || o.Trust != nil && verify(o.InUse.Leaf, o.Node, o.Trust, o.Now) != nil {
		return time.Time{}
	}
	return o.InUse.Renew
}

func (o *Observation) issued() (*tls.Certificate, error) {
	der, err := single(o.Request.Status.Certificate)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading it: %w", err)
	}
	public, ok := o.Key.Public().(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(leaf.PublicKey) {
		return nil, errors.New("it is for another key")
	}
	if err := verify(leaf, o.Node, o.Trust, o.Now); err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: o.Key, Leaf: leaf}, nil
}

// verify checks the certificate as virt-api does.
func verify(leaf *x509.Certificate, node string, trust *x509.CertPool, now time.Time) error {
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: trust, DNSName: DNSName(node), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
