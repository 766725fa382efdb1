package nodekey

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"drydock.dev/drydock/internal/certs/certstest"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// signer answers requests as virt-api does, by the same decisions.
type signer struct {
	t      *testing.T
	client *fake.Clientset
	mu     sync.Mutex
	by     *nodecert.Authority
	// older is a virt-api of the previous release, which signs for servers only.
	older bool
	// away makes the API server answer nothing.
	away    bool
	asked   int
	deleted int
	written int
}

// holder serves with the certificate.
type holder struct {
	mu     sync.Mutex
	trust  *x509.CertPool
	taken  []*tls.Certificate
	notify func()
}

func (h *holder) Use(pair *tls.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken = append(h.taken, pair)
}

func (h *holder) OwnAuthorities() *x509.CertPool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trust
}

func (h *holder) OnChange(notify func()) { h.notify = notify }

func (h *holder) publish(certificates ...[]byte) {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AppendCertsFromPEM(c)
	}
	h.mu.Lock()
	h.trust = pool
	h.mu.Unlock()
	h.notify()
}

func (h *holder) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.taken)
}

// The API server records the requesters and counts.
func newSigner(t *testing.T) *signer {
	s := &signer{t: t, client: fake.NewClientset()}
	s.client.PrependReactor("*", "certificatesigningrequests", func(action kubetesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.away {
			return true, nil, errors.New("the API server is away")
		}
		if create, ok := action.(kubetesting.CreateAction); ok && action.GetVerb() == "create" {
			s.asked++
			request := create.GetObject().(*certificatesv1.CertificateSigningRequest)
			request.UID = types.UID(strconv.Itoa(s.asked))
			request.Spec.Username = nodecert.Account
			request.Spec.Extra = map[string]certificatesv1.ExtraValue{
				"authentication.kubernetes.io/node-name": {"node1"}, "authentication.kubernetes.io/pod-uid": {"u"},
			}
		}
		// Create and update actions have the same fields.
		if change, ok := action.(kubetesting.CreateAction); ok {
			s.written++
			change.GetObject().(*certificatesv1.CertificateSigningRequest).ResourceVersion = strconv.Itoa(s.written)
		}
		if action.GetVerb() == "delete" {
			s.deleted++
		}
		return false, nil, nil
	})
	return s
}

func (s *signer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Without a CA it does nothing.
func (s *signer) work(ctx context.Context) {
	requests := s.client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		request := &list.Items[i]
		if s.by == nil || nodecert.Judge(request).Act == nodecert.Ignore {
			continue
		}
		verdict := nodecert.Judge(request)
		if s.older && slices.Contains(request.Spec.Usages, certificatesv1.UsageClientAuth) {
			verdict.Act, verdict.Condition.Type = nodecert.Refuse, certificatesv1.CertificateDenied
		}
		nodecert.Conclude(request, verdict, metav1.Now())
		if verdict.Act == nodecert.Approve {
			if request.Status.Certificate, err = s.by.Sign(verdict.Grant, time.Now()); err != nil {
				s.t.Error(err)
			}
		}
		if _, err := requests.UpdateStatus(ctx, request, metav1.UpdateOptions{}); err != nil {
			s.t.Error(err)
		}
	}
}

// The keeper's time runs as fast as possible.
type scene struct {
	*signer
	*holder
	t    *testing.T
	stop func()
}

func begin(t *testing.T) *scene {
	s := &scene{signer: newSigner(t), holder: &holder{}, t: t}
	s.run()
	return s
}

// The virt-handler has no memory of an earlier one.
func (s *scene) run() {
	ctx, cancel := context.WithCancel(s.t.Context())
	keeper := &Keeper{Node: "node1", Requests: s.client.CertificatesV1().CertificateSigningRequests(), Holder: s.holder, Log: logr.Discard()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = keeper.Start(ctx)
	}()
	s.stop = func() {
		cancel()
		<-ended
	}
	synctest.Wait()
}

func (s *scene) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(min(d/1000, time.Until(end)))
		synctest.Wait()
		s.work(s.t.Context())
		synctest.Wait()
	}
}

func (s *scene) requests() int {
	list, err := s.client.CertificatesV1().CertificateSigningRequests().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(list.Items)
}

func TestACertificateIsRenewedWithAnotherKeyWhileItIsGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		authority, certificate := certstest.Signer(t)
		s.by = authority
		s.publish(certificate)
		s.pass(5 * 24 * time.Hour)
		taken := s.taken
		if len(taken) < 5 || len(taken) > 7 {
			t.Fatalf("%d certificates in five days, want one a day", len(taken))
		}
		for i := 1; i < len(taken); i++ {
			if left := taken[i-1].Leaf.NotAfter.Sub(taken[i].Leaf.NotBefore.Add(time.Hour)); left < 12*time.Hour {
				t.Errorf("certificate %d came when the one before it had %v left", i, left)
			}
			if taken[i].PrivateKey.(*ecdsa.PrivateKey).Equal(taken[i-1].PrivateKey) {
				t.Errorf("certificate %d has the key of the one before", i)
			}
		}
		if s.requests() != 0 || s.asked != len(taken) {
			t.Errorf("%d requests are left, %d were made for %d certificates", s.requests(), s.asked, len(taken))
		}
	})
}

func TestWithoutASignerTheRequestWaitsAndNothingIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		authority, certificate := certstest.Signer(t)
		s.publish(certificate)
		s.pass(12 * time.Hour)
		if s.count() != 0 || s.asked != 1 || s.deleted != 0 {
			t.Errorf("%d certificates, %d requests made, %d deleted; want one that waits", s.count(), s.asked, s.deleted)
		}
		s.by = authority
		s.pass(5 * time.Second)
		if s.count() != 1 || s.requests() != 0 {
			t.Errorf("%d certificates, %d requests left", s.count(), s.requests())
		}
	})
}

func TestARequestThatWasCollectedIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		authority, certificate := certstest.Signer(t)
		s.publish(certificate)
		s.pass(time.Minute)
		if err := s.client.CertificatesV1().CertificateSigningRequests().Delete(t.Context(), nodecert.RequestName("node1"), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		s.pass(10 * time.Second)
		if s.requests() != 1 || s.asked != 2 {
			t.Fatalf("%d requests, %d made", s.requests(), s.asked)
		}
		s.by = authority
		s.pass(5 * time.Second)
		if s.count() != 1 {
			t.Errorf("%d certificates", s.count())
		}
	})
}

func TestWhileTheAPIServerIsAwayTheCertificateStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		authority, certificate := certstest.Signer(t)
		s.by = authority
		s.publish(certificate)
		s.pass(time.Minute)
		s.set(func() { s.away = true })
		s.pass(36 * time.Hour)
		if s.count() != 1 {
			t.Fatalf("%d certificates", s.count())
		}
		s.set(func() { s.away = false })
		s.pass(5 * time.Minute)
		if s.count() != 2 || s.requests() != 0 {
			t.Errorf("%d certificates, %d requests left", s.count(), s.requests())
		}
	})
}

// A restarted virt-handler has no key, and finds its predecessor's request.
func TestARestartAtAnyMomentGetsACertificate(t *testing.T) {
	for what, stop := range map[string]func(*scene){
		"before it was signed":             func(s *scene) { s.pass(time.Second); s.stop() },
		"after it was signed, before used": func(s *scene) { s.pass(time.Second); s.stop(); s.signOnce() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t)
				defer func() { s.stop() }()
				authority, certificate := certstest.Signer(t)
				s.publish(certificate)
				stop(s)
				s.by = authority
				before := s.asked
				s.run()
				s.pass(10 * time.Second)
				if s.count() != 1 || s.requests() != 0 || s.asked != before+1 {
					t.Errorf("%d certificates, %d requests left, %d made", s.count(), s.requests(), s.asked)
				}
			})
		})
	}
}

func (s *scene) signOnce() {
	authority, _ := certstest.Signer(s.t)
	s.by = authority
	s.work(s.t.Context())
	s.by = nil
}

// While virt-api is of the previous release, consoles must work; soon after its upgrade migrations must, too.
func TestACertificateOfAnOlderSignerIsForServingAndIsReplacedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		authority, certificate := certstest.Signer(t)
		s.by, s.older = authority, true
		s.publish(certificate)
		s.pass(10 * time.Second)
		if s.count() != 1 || nodecert.Calls(s.taken[0].Leaf) {
			t.Fatalf("%d certificates of the older signer, want one for serving", s.count())
		}
		s.pass(time.Hour)
		if n := s.count(); n < 5 || n > 8 || s.asked > 3*n {
			t.Errorf("%d certificates after %d requests in an hour of the older signer", n, s.asked)
		}
		before := s.count()
		s.set(func() { s.older = false })
		s.pass(15 * time.Minute)
		if s.count() != before+1 || !nodecert.Calls(s.taken[before].Leaf) || s.requests() != 0 {
			t.Errorf("%d certificates after the upgrade, the last calls others: %v", s.count()-before, nodecert.Calls(s.taken[len(s.taken)-1].Leaf))
		}
		s.pass(12 * time.Hour)
		if s.count() != before+1 {
			t.Errorf("%d certificates in the half day after the upgrade", s.count()-before)
		}
	})
}

func TestASignerThatNobodyTrustsIsAskedMoreAndMoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		stranger, _ := certstest.Signer(t)
		authority, certificate := certstest.Signer(t)
		s.by = stranger
		s.publish(certificate)
		s.pass(time.Hour)
		if s.count() != 0 || s.asked < 10 || s.asked > 60 {
			t.Errorf("%d certificates after %d requests in an hour", s.count(), s.asked)
		}
		s.by = authority
		s.pass(5 * time.Minute)
		if s.count() != 1 {
			t.Errorf("%d certificates", s.count())
		}
	})
}

// An administrator who removes a CA wants its certificates replaced at once.
func TestACertificateWhoseAuthorityIsGoneIsReplacedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := begin(t)
		defer func() { s.stop() }()
		first, certificate := certstest.Signer(t)
		second, successor := certstest.Signer(t)
		s.by = first
		s.publish(certificate)
		s.pass(time.Minute)
		s.by = second
		s.publish(successor, certificate)
		s.pass(time.Hour)
		if s.count() != 1 {
			t.Errorf("%d certificates while both are trusted, want 1", s.count())
		}
		s.publish(successor)
		s.pass(5 * time.Second)
		if s.count() != 2 {
			t.Errorf("%d certificates after the first was taken out, want 2", s.count())
		}
	})
}
